"""S8: a cancel is a barrier, at random moments of a run with commands, writes and children.

No effect happens afterwards, no process remains, and the conversation can be continued. The short
form cancels 40 runs, MUDROOM_LONG=1 five hundred.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from mudroom import (
    AnyEvent,
    Budget,
    Effect,
    MudroomError,
    Reason,
    Report,
    Session,
    ToolCallBlock,
    ToolContext,
    ToolResult,
)
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import FileWriteIntended, RunFinished

from ..waiting import find_processes, wait_until
from .conftest import CheckRecord
from .killed import LONG
from .recorded import make_tool, open_scripted

RUNS = 500 if LONG else 40
TOGETHER = 8


class Life:
    """A session that is cancelled; `seed` decides when and how."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance, self.mark = random.Random(seed), f"mark-{os.getpid()}-{seed}-"
        self.work, self.home = folder / "work", folder / "home"
        self.work.mkdir(parents=True)
        self.how = self.chance.choice(("cancel", "outer", "timeout", "wrap up", "child"))
        self.moment = self.chance.choice((0.0, 0.02, 0.1, 0.4)) + self.chance.random() * 0.1

    def script(self, request: Request) -> Answer:
        if "Again" in str(request.messages[-1]):
            return "I continue."
        if not request.tools:
            return "What I have."
        if request.prompt == "PARENT":
            return [call("task", prompt=f"CHILD {name}") for name in "abc"] + [
                self.write_call("p", request.turn),
                self.call_bash("p", request.turn),
            ]
        name, turn = request.prompt[-1], request.turn
        return [
            *(self.write_call(f"{name}{n}", turn) for n in range(4)),
            self.call_bash(name, turn),
        ]

    def write_call(self, name: str, turn: int) -> ToolCallBlock:
        return call("write", file_path=f"{name}.{turn}.txt", content=f"{turn}\n")

    def call_bash(self, name: str, turn: int) -> ToolCallBlock:
        line = f"echo {self.mark}{name}{turn} >> effects.txt"
        return call(
            "bash",
            command=(
                f": {self.mark}; (sleep 60 & setsid sleep 60 &) ; for n in 1 2 3; do "
                f"{line}; sleep 0.02; done"
            ),
        )

    async def run_session(self, check_record: CheckRecord) -> None:
        seconds = self.moment if self.how == "timeout" else None
        budget = Budget(seconds=seconds)
        home = str(self.home)
        async with open_scripted(self.work, self.script, home=home, budget=budget) as session:
            running = asyncio.create_task(session.run("PARENT"))
            await asyncio.sleep(self.moment)
            report = await self.end(session, running)
            acknowledged = self.read_files()
            assert report is None or report.reason is (
                Reason.TIMEOUT if self.how == "timeout" else Reason.CANCELLED
            )
            await self.check_nothing_remains()
            assert self.read_files() == acknowledged, "an effect after the cancel was acknowledged"
            session.budget = Budget(depth=1)
            assert (await session.run("Again.")).text == "I continue."
            path = self.home / "sessions" / f"{session.id}.db"
        self.check_effects()
        where = f"{self.how} after {self.moment} s"
        await check_record(open_reader(path).read(), where=where)

    async def end(self, session: Session, running: asyncio.Task[Report]) -> Report | None:
        if self.how == "child":
            session.runs.cancel("1.1.2")
            await asyncio.sleep(0.05)
        if self.how in ("cancel", "child"):
            session.runs.cancel()
        elif self.how == "wrap up":
            session.runs.wrap_up("1")
        elif self.how == "outer":
            running.cancel()
        try:
            return await running
        except asyncio.CancelledError:
            assert self.how == "outer"
            return None

    def read_files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.work.iterdir())}

    async def check_nothing_remains(self) -> None:
        await wait_until(lambda: not find_processes(self.mark))
        await asyncio.sleep(0.05)

    def check_effects(self) -> None:
        file = self.work / "effects.txt"
        lines = Counter(file.read_text().split() if file.exists() else ())
        assert max(lines.values(), default=0) <= 3, "a command ran twice"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, RUNS, TOGETHER))
async def test_s8_f10_cancel_is_a_barrier(
    tmp_path: Path, first: int, check_record: CheckRecord
) -> None:
    async with asyncio.TaskGroup() as group:
        for seed in range(first, min(RUNS, first + TOGETHER)):
            group.create_task(Life(tmp_path / str(seed), seed).run_session(check_record))


async def test_s8_a_cancel_waits_for_a_started_write_and_none_starts_later(
    tmp_path: Path,
) -> None:
    async def write(context: ToolContext, arguments: dict[str, int]) -> ToolResult:
        path = f"{arguments['n']}.txt"
        await asyncio.to_thread(context.workspace.write, path, b"x" * 60_000_000)
        return ToolResult("written")

    big = make_tool("big", write, effect=Effect.KEYED)
    model = ScriptedModel([[call("big", n=n) for n in range(4)], "I continue."])

    def cancel(event: AnyEvent) -> None:
        if isinstance(event, FileWriteIntended):
            session.runs.cancel()

    async with open_scripted(tmp_path, model, journal="memory", tools=[big]) as session:
        session.watch(cancel)
        assert (await session.run("PARENT")).reason is Reason.CANCELLED
        acknowledged = sorted(path.name for path in tmp_path.iterdir())
        assert not any(name.startswith(".mudroom") for name in acknowledged), "a write is under way"
        await asyncio.sleep(0.3)
        assert sorted(path.name for path in tmp_path.iterdir()) == acknowledged
        assert (await session.run("Again.")).ok


async def test_s8_a_write_in_a_thread_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    started, reported, errors = asyncio.Event(), threading.Event(), list[str]()

    def late(context: ToolContext) -> None:
        loop.call_soon_threadsafe(started.set)
        reported.wait(60)
        try:
            context.workspace.write("late.txt", b"late")
        except MudroomError as error:
            errors.append(str(error))

    async def write(context: ToolContext, _arguments: object) -> ToolResult:
        await asyncio.to_thread(late, context)
        return ToolResult("written")

    loop = asyncio.get_running_loop()
    tool = make_tool("late", write, effect=Effect.KEYED)
    model = ScriptedModel([call("late")])
    async with open_scripted(tmp_path, model, journal="memory", tools=[tool]) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await started.wait()
        session.runs.cancel()
        assert (await running).reason is Reason.CANCELLED
        reported.set()
        await wait_until(lambda: errors or (tmp_path / "late.txt").exists())
    assert not (tmp_path / "late.txt").exists() and "the run has ended" in errors[0]


async def test_s10_a_cancel_while_a_run_ends_is_no_second_end(
    tmp_path: Path, check_record: CheckRecord
) -> None:
    """Cancel in the grace turn after a limit: the reason stays, there is no summary."""
    events: list[AnyEvent] = []
    summing = asyncio.Event()

    async def script(request: Request) -> Answer:
        if request.tools:
            return call("glob", pattern="*")
        summing.set()
        await asyncio.sleep(60)
        return "too late"

    budget = Budget(turns=1)
    async with open_scripted(tmp_path, script, prompt_budget=budget) as session:
        session.watch(events.append)
        for end in ("outer", "own"):
            running = asyncio.create_task(session.run("PARENT"))
            await summing.wait()
            summing.clear()
            assert running.cancel() if end == "outer" else session.runs.cancel()
            if end == "outer":
                with pytest.raises(asyncio.CancelledError):
                    await running
            else:
                assert (await running).reason is Reason.MAX_TURNS
    assert [event.report.reason for event in events if isinstance(event, RunFinished)] == [
        Reason.MAX_TURNS
    ] * 2
    await check_record(events)


async def test_f20_a_tool_that_raises_cancelled_error_is_a_failed_call(tmp_path: Path) -> None:
    async def cancelled(_context: object, _arguments: object) -> ToolResult:
        waiting = asyncio.ensure_future(asyncio.sleep(10))
        waiting.cancel()
        await waiting
        return ToolResult("never")

    odd = make_tool("odd", cancelled)
    model = ScriptedModel(
        lambda request: call("odd") if request.turn == 0 else request.results[0].text
    )
    async with open_scripted(tmp_path, model, journal="memory", tools=[odd]) as session:
        assert "odd failed" in (await session.run("PARENT")).text
