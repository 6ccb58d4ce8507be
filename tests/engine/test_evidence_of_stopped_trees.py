"""Evidence of a tree of runs that is stopped: the parent lists the files of its children."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from mudroom import (
    AssistantMessage,
    Budget,
    Effect,
    Integrations,
    Reason,
    Report,
    Session,
    ToolCallBlock,
    tool,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._core.events import RunFinished
from mudroom._core.ports import Hooks
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.ports import ToolContext
from mudroom.testing import Request, ScriptedModel, call

from ..worker_kinds import RAY

FILES = {"w1.txt", "w2.txt", "f1.txt", "f2.txt"}


def _work(request: Request) -> list[ToolCallBlock] | AssistantMessage | str:
    """Start two children; each writes a file, runs a command, and then a command that hangs."""
    if not request.tools or (request.prompt == "PARENT" and request.turn):
        return "summary"
    if request.prompt == "PARENT":
        return [call("task", prompt=f"CHILD {number}") for number in (1, 2)]
    number = request.prompt[-1]
    if request.turn == 0:
        return [call("write", file_path=f"w{number}.txt", content="x")]
    if request.turn == 1:
        return [call("bash", command=f"echo > f{number}.txt")]
    return [call("bash", command=f"echo > ready{number}; sleep 600")]


def _open(folder: Path, **options: Any) -> tuple[Session, MemoryJournal]:
    work = folder / "work"
    work.mkdir()
    journal = MemoryJournal()
    defaults: dict[str, Any] = {
        "model": ScriptedModel(_work),
        "cwd": str(work),
        "home": str(folder / "home"),
        "environ": {},
        "sandbox": "off",
        "journal": journal,
    }
    return Session(**(defaults | options)), journal


@pytest.mark.parametrize("worker", ["", "process:2", RAY])
async def test_a_cancelled_parent_lists_the_files_of_its_children(
    worker: str, tmp_path: Path
) -> None:
    session, journal = _open(tmp_path, **({"worker": worker} if worker else {}))
    async with session:
        running = asyncio.create_task(session.run("PARENT"))
        ready = [tmp_path / "work" / f"ready{number}" for number in (1, 2)]
        await wait_until(lambda: all(path.exists() for path in ready))
        session.runs.cancel()
        report = await running
    assert report.reason is Reason.CANCELLED
    assert set(report.files_changed) >= FILES
    if not worker:
        await replay(journal.events)


async def test_the_files_of_children_whose_time_is_up_are_listed(tmp_path: Path) -> None:
    session, journal = _open(tmp_path, budget=Budget(seconds=4))
    async with session:
        report = await session.run("PARENT")
    assert report.reason is Reason.GOAL and report.seconds < 4
    ends = [each.report for each in journal.events if isinstance(each, RunFinished)]
    assert [each.reason for each in ends] == [Reason.TIMEOUT, Reason.TIMEOUT, Reason.GOAL]
    on_disk = {each.name for each in (tmp_path / "work").iterdir()}
    assert report.unknown_changes or set(report.files_changed) == on_disk
    await replay(journal.events)


async def test_a_call_that_is_cut_off_after_its_write_lists_the_file(tmp_path: Path) -> None:
    has_written = asyncio.Event()

    @tool(effect=Effect.KEYED)
    async def save(context: ToolContext) -> str:
        """Save a file, and hang."""
        context.workspace.write("made.txt", b"x")
        has_written.set()
        await asyncio.Event().wait()
        return "saved"

    session, journal = _open(tmp_path, model=ScriptedModel([[call("save")]]), tools=[save])
    async with session:
        running = asyncio.create_task(session.run("PARENT"))
        await has_written.wait()
        session.runs.cancel()
        report = await running
    assert report.files_written == ("made.txt",)
    await replay(journal.events)


async def test_a_hook_that_fails_keeps_the_files_of_the_child(tmp_path: Path) -> None:
    class FailingHooks(Hooks):
        async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
            raise ValueError("refused")

    def work(request: Request) -> list[ToolCallBlock] | str:
        if request.turn:
            return "done"
        if request.prompt == "PARENT":
            return [call("task", prompt="CHILD")]
        return [call("write", file_path="made.txt", content="x")]

    session, _ = _open(
        tmp_path, model=ScriptedModel(work), integrations=Integrations(hooks=FailingHooks())
    )
    async with session:
        report = await session.run("PARENT")
    assert report.files_written == ("made.txt",)
