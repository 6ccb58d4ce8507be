"""Everything that a folder can bring: nothing of it runs before trust, nor after a change.

Each program leaves a marker. After `mudroom trust add` the programs that trust enables must leave
theirs, so that an empty list of markers before it means something.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, Session
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.prepare_editor_session import prepare_session
from mudroom._cli.actions.prompt_files import list_file_prompts
from mudroom._cli.actions.session_start import StartOptions
from mudroom._cli.interactive.plain_ui import PlainUI
from mudroom._cli.interactive.session_loop import run_sessions
from mudroom._cli.main import run
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom_hosts.acp.setup import EditorSessionPlan

from ..plugin_folder import write
from ..stranger_folder import PROMPT, Address, Stranger

FLAGS = ("-m", "offline", "--sandbox", "off", "--allowed-tools", "Bash(touch:*)")


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Stranger]:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setattr("sys.stdin", None)
    address = Address()
    thread = threading.Thread(target=address.server.serve_forever, args=(0.05,))
    thread.start()
    folder = Stranger(tmp_path, address)
    monkeypatch.chdir(folder.project)
    yield folder
    address.server.shutdown()
    thread.join()
    address.server.server_close()


def run_all(*commands: list[str]) -> None:
    for command in commands:
        run(command)


def open_by_print(stranger: Stranger) -> None:
    run(["-p", PROMPT, *FLAGS])
    run(["-p", PROMPT, *FLAGS, "--continue", "-o", "stream-json", "--isolate"])
    for slash in stranger.prompts:
        assert run(["-p", slash, *FLAGS]) == 2, slash
        run(["-p", f" {slash}", *FLAGS])


def open_by_commands(_: Stranger) -> None:
    run_all(["mcp"], ["mcp", "tools"], ["hooks"], ["plugins"], ["agents"], ["trust"], ["doctor"])
    run_all(["permissions"], ["runs"], ["mcp", "get", "remote"], ["mcp", "add", "more", "touch"])


async def open_at_prompt(stranger: Stranger) -> None:
    settings = load_settings(".", model="offline", sandbox="off", allowed_tools="Bash(touch:*)")
    lines = ["no", PROMPT, *stranger.prompts, "/exit"]
    with give_lines(lines):
        async with PlainUI(settings) as ui:
            await run_sessions(ui, StartOptions(settings=settings, cwd=".", quiet=True))


@contextmanager
def give_lines(lines: list[str]) -> Generator[None]:
    reader, writer = os.pipe()
    os.write(writer, "".join(f"{line}\n" for line in lines).encode())
    os.close(writer)
    with os.fdopen(reader) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        yield


async def open_by_session(stranger: Stranger) -> None:
    options: dict[str, Any] = {"home": str(stranger.base / "state"), "journal": "memory"}
    async with Session(
        model="offline",
        integrations=Integrations(agent_files=True, trusted=False),
        sandbox="off",
        **options,
    ) as session:
        await session.run(PROMPT)
        for prompt in list_file_prompts(session):
            await session.run(prompt.format_prompt(""))


class NoQuestions:
    """An editor that is asked nothing."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        raise AssertionError(request)


async def open_by_editor(stranger: Stranger) -> None:
    flags = {"model": "offline", "sandbox": "off"}
    async with prepare_session(
        flags, EditorSessionPlan(cwd=str(stranger.project)), NoQuestions()
    ) as session:
        await session.run(PROMPT)
        for prompt in list_file_prompts(session):
            await session.run(prompt.format_prompt(""))


DOORS: list[Callable[[Stranger], Any]] = [
    open_by_print,
    open_by_commands,
    open_at_prompt,
    open_by_session,
    open_by_editor,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_nothing_of_a_folder_runs_before_trust(
    stranger: Stranger, door: Callable[[Stranger], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    if door in (open_by_print, open_by_commands):
        # The command line starts an event loop of its own.
        thread = threading.Thread(target=door, args=(stranger,))
        thread.start()
        thread.join()
    else:
        await door(stranger)
    assert stranger.list_markers() == set()
    assert stranger.address.requests == []
    out, err = capsys.readouterr()
    if door is open_by_print:
        assert re.search(r"not used: \d+ MCP servers and \d+ hooks of this folder", err)
        assert err.count("you have not trusted the shell commands in it") == len(stranger.prompts)
        assert f"{stranger.project}/.claude/commands/fenced.md" in err
    if door is open_at_prompt:
        told = " ".join(out.split()).count("you have not trusted the shell commands in it")
        assert told == len(stranger.prompts)


def test_programs_of_a_trusted_folder_run_until_they_change(stranger: Stranger) -> None:
    calls = [["-p", slash, *FLAGS] for slash in stranger.prompts]
    everything = [["-p", PROMPT, *FLAGS], ["mcp", "tools"], *calls]
    assert run(["trust", "add", "."]) == 0
    run_all(*everything)
    assert stranger.list_markers() == stranger.enabled
    assert ("/claude", "s3cret") in stranger.address.requests
    assert "/vscode" in {path for path, _ in stranger.address.requests}

    stranger.address.requests.clear()
    before = stranger.list_markers()
    stranger.version = "-changed"
    stranger.write()
    run_all(*everything)
    assert stranger.list_markers() == before
    assert stranger.address.requests == []

    assert run(["trust", "add", "."]) == 0
    assert run(["trust", "remove", "."]) == 0
    run_all(everything[0], calls[0])
    assert stranger.list_markers() == before


def test_modules_in_the_folder_are_not_imported(stranger: Stranger) -> None:
    names = ("json", "asyncio", "typing", "msgspec", "sitecustomize", "usercustomize", "mudroom")
    for name in names:
        text = f"open({str(stranger.markers / name)!r}, 'w')\n"
        write(stranger.project / f"{name}.py", text)
        write(stranger.project / name / "__init__.py", text)
    program = Path(sys.executable).with_name("mudroom")
    if not program.exists():
        pytest.skip("mudroom is not installed as a program")
    prompt = "Which testing framework does this project use?"
    done = subprocess.run(
        [str(program), "-p", prompt, "-m", "offline", "--worker", "process"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert stranger.list_markers() == set()
    assert "1 child" in done.stderr, done.stderr
    env = {**os.environ, "PYTHONPATH": str(stranger.project)}
    subprocess.run([sys.executable, "-c", "import json"], env=env, check=False)
    assert "sitecustomize" in stranger.list_markers()


def test_files_in_a_home_that_is_a_repository_are_the_users(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(stranger.project))
    marker = f"touch {stranger.markers}/own"
    write(stranger.project / ".claude/commands/own.md", f"{PROMPT}\n!`{marker}`")
    run(["-p", "/own", *FLAGS])
    assert "own" in stranger.list_markers()
