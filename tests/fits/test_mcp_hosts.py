"""MCP hosts with the TypeScript clients of the protocol, and its inspector. Run: make fits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLACE = os.environ.get("MUDROOM_FITS", "")
CLIENT = Path(__file__).with_name("mcp_client.mjs")
CLIENT_2 = Path(__file__).with_name("mcp_client_2.mjs")
PROGRAM = str(Path(sys.executable).with_name("mudroom"))
PROMPT = "find what testing framework this project uses"

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file that the offline model understands."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["pytest"]\n')
    return tmp_path


def run_host(folder: Path, *command: str) -> Any:
    """Run a host, and return the JSON that it prints."""
    home = {"HOME": str(folder), "MUDROOM_HOME": str(folder / "home")}
    done = subprocess.run(
        command,
        env={**os.environ, **home, "MUDROOM_MODEL": "offline"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_received(received: Any) -> None:
    """Check what a host has received of a task."""
    assert received["server"]["name"] == "mudroom"
    assert {"task", "task_many", "task_result"} <= set(received["names"])
    result = received["result"]
    assert "pytest" in result["structuredContent"]["report"] and not result.get("isError")
    assert received["progress"] and received["progress"] == sorted(set(received["progress"]))


def test_the_typescript_client_gives_a_task_and_receives_progress(folder: Path) -> None:
    shutil.copy(CLIENT, PLACE)
    for _ in range(2):  # the second server sends the kept first answer
        client = str(Path(PLACE, CLIENT.name))
        check_received(run_host(folder, "node", client, PROGRAM, str(folder), PROMPT))


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_version_2_of_the_typescript_client_speaks_both_revisions(
    mode: str, protocol: str, folder: Path
) -> None:
    shutil.copy(CLIENT_2, PLACE)
    client = str(Path(PLACE, CLIENT_2.name))
    received = run_host(folder, "node", client, PROGRAM, str(folder), PROMPT, mode)
    check_received(received)
    assert received["protocol"] == protocol


def test_the_inspector_lists_the_tools_and_gives_a_task(folder: Path) -> None:
    inspector = str(Path(PLACE, "node_modules", ".bin", "mcp-inspector"))
    # It starts servers with few variables of its own.
    start = (inspector, "--cli", "-e", "MUDROOM_MODEL=offline", PROGRAM, "mcp", "serve")
    words = (*start, "-C", str(folder), "--method")
    listed = run_host(folder, *words, "tools/list")
    assert {"task", "task_many", "task_result"} <= {tool["name"] for tool in listed["tools"]}
    task = ("tools/call", "--tool-name", "task", "--tool-arg", f"prompt={PROMPT}")
    result = run_host(folder, *words, *task)
    assert "pytest" in result["structuredContent"]["report"] and not result.get("isError")
