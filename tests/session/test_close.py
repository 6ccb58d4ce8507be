"""A closed session leaves no run and no process behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason, Session
from mudroom.events import RunFinished, ToolCallStarted
from mudroom.testing import Answer, Request, ScriptedModel, call

from ..worker_kinds import WORKERS


def list_child_pids() -> set[str]:
    """Process ids of this process's children."""
    return set(Path("/proc/self/task").glob("*/children").__next__().read_text().split())


async def test_processes_that_start_commands_end_with_the_session(tmp_path: Path) -> None:
    before = list_child_pids()
    model = ScriptedModel([[call("bash", command="echo hello")], "done"])
    async with Session(
        model=model, cwd=str(tmp_path), home=str(tmp_path / "home"), journal="memory"
    ) as session:
        report = await session.run("say hello")
    assert report.calls == {"bash": 1} and not report.failed
    assert list_child_pids() <= before


@pytest.mark.parametrize("worker", WORKERS)
async def test_closing_a_session_cancels_runs_that_still_work(worker: str, tmp_path: Path) -> None:
    started = asyncio.Event()
    reports: dict[str, Reason] = {}

    def watch(event: AnyEvent) -> None:
        if isinstance(event, ToolCallStarted) and event.run == "1.1.1":
            started.set()
        if isinstance(event, RunFinished):
            reports[event.run] = event.report.reason

    def answer(request: Request) -> Answer:
        if request.prompt == "P":
            return call("task", prompt="CHILD")
        return call("bash", command="sleep 60")

    session = Session(
        model=ScriptedModel(answer),
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        sandbox="off",
        worker=worker,
    )
    async with session:
        session.watch(watch)
        task = asyncio.create_task(session.run("P"))
        await asyncio.wait_for(started.wait(), 20)
    assert reports == {"1.1.1": Reason.CANCELLED, "1": Reason.CANCELLED}
    await asyncio.gather(task, return_exceptions=True)
