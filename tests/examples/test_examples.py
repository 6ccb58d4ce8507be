"""Every example runs as it stands, offline, and says what it says."""

from __future__ import annotations

import ast
import asyncio
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
SAYS = {
    "01_one_task.py": ("pytest", "[GOAL: "),
    "02_map_over_files.py": (
        "01_one_task.py: Module(title='One task in a clean context: the child reads the files,",
        "08_events_to_a_web_page.py: Module(title='Every event of a run, live, on a web page:",
    ),
    "03_document_extractor.py": (
        "**Executing tool: read with args {'file_path': 'documents/on-mud.md'}**",
        "{'title': 'On Mud, and Where to Leave It', 'author': 'Ada Bootscraper'} GOAL",
    ),
    "04_reviewer_from_a_file.py": (
        "reviewer: Reviews a file for readability.",
        "Nothing is hard to read.",
        "[used read; changed 0 files]",
    ),
    "05_your_own_tool.py": (
        "There are 3 pairs of boots.",
        "[in_stock was called 2 times, 1 failed]",
    ),
    "06_your_own_model.py": ("You said 3 words. You said 3 words. [mine:word-counter, 14 tokens]",),
    "07_budgets.py": (
        "MAX_TURNS: 6 turns",
        "BUDGET: ",
        "TIMEOUT: ",
        "lines of it and was not done.",
    ),
}


def make_project(folder: Path) -> Path:
    """Make a small project: the offline model reads all that it is given."""
    project = folder / "project"
    (project / "examples").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (project / "test_boots.py").write_text(
        "import pytest\n\n\ndef test_boots():\n    assert pytest\n"
    )
    return project


def make_environ(home: Path) -> dict[str, str]:
    """Of a person without any key."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "MUDROOM_HOME": str(home / "state"),
        "PYTHONWARNINGS": "error",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_shorter_than_a_page(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize("name", [path.name for path in FILES if path.name in SAYS])
async def test_an_example_runs_offline(name: str, tmp_path: Path) -> None:
    folders = [str(make_project(tmp_path))] if name.startswith("01") else []
    command = [sys.executable, str(EXAMPLES / name), *folders]
    pipes: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(
        *command, env=make_environ(tmp_path), cwd=tmp_path, **pipes
    )
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    for part in SAYS[name]:
        assert part in out.decode()


async def test_events_reach_a_web_page_as_they_happen(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = "08_events_to_a_web_page.py"  # it works on the folder above its own
    example = shutil.copy(EXAMPLES / name, make_project(tmp_path) / "examples")
    command = [sys.executable, str(example), str(port)]
    process = await asyncio.create_subprocess_exec(
        *command, env=make_environ(tmp_path), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with aiohttp.ClientSession() as client:
            page = await _fetch_page(client, f"http://127.0.0.1:{port}/")
            assert "EventSource" in page
            async with client.get(f"http://127.0.0.1:{port}/events") as response:
                stream = (await response.content.read()).decode()
    finally:
        process.terminate()
        await process.wait()
    kinds = [
        line.split('"type":"')[1].split('"')[0]
        for line in stream.split("\n")
        if line.startswith("data: ")
    ]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_finished")
    assert {"run_started", "turn_started", "delta", "tool_call_started", "run_finished"} <= set(
        kinds
    )
    assert "pytest" in stream


async def _fetch_page(client: aiohttp.ClientSession, url: str) -> str:
    async with asyncio.timeout(60):
        while True:
            try:
                async with client.get(url) as response:
                    return await response.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


def test_every_example_is_run() -> None:
    assert {path.name for path in FILES} == {*SAYS, "08_events_to_a_web_page.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_example_imports_only_public_modules(path: Path) -> None:
    doors = {"mudroom", "mudroom.ports", "mudroom.scope", "mudroom.testing"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mudroom"):
            assert node.module in doors
