"""Evidence of a tree of runs that is stopped: the parent lists the files of its children."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.conftest import Stage

from mudroom import (
    AssistantMessage,
    Budget,
    Effect,
    Integrations,
    Reason,
    Report,
    ToolCallBlock,
    tool,
)
from mudroom._core.events import StoredEvent
from mudroom._core.ports import Hooks
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.ports import ToolContext
from mudroom.testing import Answer, Request, call, run_virtual

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


async def cancel_when(stage: Stage, is_ready: Callable[[], object], **options: Any) -> Report:
    """Run the prompt, cancel it, and return its report. Check the record."""
    async with stage.open(**options) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(is_ready)
        session.runs.cancel()
        report = await running
        await stage.check_record()
    return report


@pytest.mark.parametrize("worker", ["local", "process:2", RAY])
async def test_a_cancelled_parent_lists_the_files_of_its_children(
    worker: str, stage: Stage
) -> None:
    ready = [stage.folder / f"ready{number}" for number in (1, 2)]
    report = await cancel_when(
        stage, lambda: all(path.exists() for path in ready), script=_work, worker=worker
    )
    assert report.reason is Reason.CANCELLED
    assert set(report.files_changed) >= FILES


def test_the_files_of_children_whose_time_is_up_are_listed(stage: Stage) -> None:
    @tool
    async def hang(name: str) -> str:
        """Make a file, and hang."""
        (stage.folder / name).touch()
        await asyncio.sleep(1e6)
        return "never"

    def work(request: Request) -> Answer:
        if request.prompt != "PARENT" and request.turn == 1 and request.tools:
            return [call("hang", name=f"f{request.prompt[-1]}.txt")]
        return _work(request)

    report = run_virtual(stage.run(work, tools=[hang], budget=Budget(seconds=4)))
    assert report.reason is Reason.GOAL and report.seconds < 4
    ends = [each.reason for each in stage.reports.values()]
    assert ends == [Reason.TIMEOUT, Reason.TIMEOUT, Reason.GOAL]
    assert set(report.files_changed) == FILES
    events = [event for event in stage.events if isinstance(event, StoredEvent)]
    assert run_virtual(replay(events)) == events


async def test_a_call_that_is_cut_off_after_its_write_lists_the_file(stage: Stage) -> None:
    has_written = asyncio.Event()

    @tool(effect=Effect.KEYED)
    async def save(context: ToolContext) -> str:
        """Save a file, and hang."""
        context.workspace.write("made.txt", b"x")
        has_written.set()
        await asyncio.Event().wait()
        return "saved"

    report = await cancel_when(stage, has_written.is_set, script=[[call("save")]], tools=[save])
    assert report.files_written == ("made.txt",)


async def test_a_hook_that_fails_keeps_the_files_of_the_child(stage: Stage) -> None:
    class FailingHooks(Hooks):
        async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
            raise ValueError("refused")

    script = {
        "PARENT": [[call("task", prompt="CHILD")], "done"],
        "CHILD": [[call("write", file_path="made.txt", content="x")], "done"],
    }
    report = await stage.run(script, integrations=Integrations(hooks=FailingHooks()))
    assert report.files_written == ("made.txt",)
