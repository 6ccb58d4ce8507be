"""A new session appears with its first prompt, in one durable step, or not at all.

The program is killed at each operation on its state folder until the prompt is recorded. The short
form kills at some of them; MUDROOM_LONG=1 at each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom import Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.journals.sessions import open_store
from mudroom._adapters.journals.sqlite.folder import get_session_path, list_sessions
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._cli.actions.session_store import find_last_session
from mudroom._core.events import AnyEvent, RunStarted, SessionClosed, SessionOpened, StoredEvent

from .conftest import Figure
from .killed import LONG

PROMPT = "Which testing framework does this project use?"


class Program:
    """The program with a state folder and a project of its own, on a disk that kills it.

    Arguments:
        shim: library to load; see disk.c.
    """

    def __init__(self, folder: Path, shim: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        (self.project / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MUDROOM_HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        self._shim = {"LD_PRELOAD": str(shim), "DISK_FOLDER": f"{self.home}/"}

    def run(self, *arguments: str, killed_at: int = 0) -> tuple[int, str]:
        """Run a command line; return exit code and output."""
        disk = {**self._shim, "DISK_DIE": str(killed_at)} if killed_at else {}
        done = subprocess.run(
            [sys.executable, "-m", "mudroom", *arguments, "--model", "offline"]
            if "-p" in arguments
            else [sys.executable, "-m", "mudroom", *arguments],
            cwd=self.project,
            env={**self._env, **disk},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def list_prompts(self) -> list[str]:
        """Return the prompts of the first runs of all listed sessions; "" where there is none."""
        prompts: list[str] = []
        for info in list_sessions(self.home):
            events = open_reader(get_session_path(self.home, info.id)).read()
            prompts.append(next((e.brief.prompt for e in events if isinstance(e, RunStarted)), ""))
        return prompts


@pytest.mark.timeout(1_200)
def test_a_kill_leaves_nothing_or_a_session_that_resume_runs(
    tmp_path: Path, shim: Path, figure: Figure
) -> None:
    operation = 1
    prompts: list[str] = []
    while not prompts:
        program = Program(tmp_path / str(operation), shim)
        code, output = program.run("-p", PROMPT, killed_at=operation)
        assert code == -9, output
        prompts = program.list_prompts()
        assert prompts in ([], [PROMPT]), f"killed at operation {operation}"
        listed = json.loads(program.run("runs", "--json")[1])
        assert [session["prompt"] for session in listed] == prompts
        code, output = program.run("resume", "last")
        assert code == (0 if prompts else 2), output
        assert ("no session of this folder is recorded" in output) == (not prompts)
        operation += 1 if LONG else 11
    figure("killed at every operation before the first prompt is recorded", f"{operation} points")


async def test_a_session_without_a_prompt_is_not_recorded(tmp_path: Path) -> None:
    shown: list[AnyEvent] = []
    session = Session(model=ScriptedModel([]), cwd=str(tmp_path), home=str(tmp_path / "home"))
    session.watch(shown.append)
    async with session:
        pass
    assert [type(event) for event in shown] == [SessionOpened, SessionClosed]
    assert list_sessions(tmp_path / "home") == []
    assert not list((tmp_path / "home" / "sessions").iterdir())


async def test_opening_and_first_prompt_are_one_append(tmp_path: Path) -> None:
    appended: list[list[str]] = []

    class CountingJournal(MemoryJournal):
        async def append(self, *events: StoredEvent) -> int:
            appended.append([type(event).__name__ for event in events])
            return await super().append(*events)

    journal = CountingJournal()
    async with Session(
        model=ScriptedModel(["hello"]), cwd=str(tmp_path), journal=journal
    ) as session:
        await session.run("PARENT")
    assert appended[0] == ["SessionOpened", "RunStarted"]


async def test_a_session_of_a_folder_that_is_not_utf_8_is_found_and_continued(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    home = str(tmp_path / "home")
    model = ScriptedModel(["hello", "hello again"])
    async with Session(model=model, cwd=str(folder), home=home) as session:
        await session.run("PARENT")
    assert await find_last_session(open_store(home), str(folder)) == session.id
    async with Session(model=model, home=home, resume=session.id) as resumed:
        assert resumed.cwd == str(folder)
