"""Replay of runs that a limit, a cancel, `wrap_up` or a fault ended at any place."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import (
    AnyEvent,
    Budget,
    Effect,
    Integrations,
    Reason,
    Report,
    Session,
    Tool,
    ToolResult,
)
from mudroom._adapters.journals.memory import MemoryJournal, MemoryStore
from mudroom._adapters.journals.sessions import read_events
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import (
    Delta,
    RunFinished,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
)
from mudroom._core.ports import Hooks
from mudroom._core.runs import Brief
from mudroom._replay import ReplayDiverged, replay
from mudroom.testing.clock import run_virtual

SECONDS = 60.0


class Stage:
    """A session whose run reaches a place and waits there.

    Attributes:
        arrived: set at the place.
    """

    def __init__(self) -> None:
        self.arrived = asyncio.Event()

    async def wait(self) -> None:
        self.arrived.set()
        await asyncio.sleep(10 * SECONDS)

    def make_tools(self) -> list[Tool]:
        async def block(_context: object, _arguments: object) -> ToolResult:
            await self.wait()
            return ToolResult("too late")

        async def quick(_context: object, _arguments: object) -> ToolResult:
            return ToolResult("quick")

        blocking = Tool(
            name="block", description="", parameters={"type": "object"}, parse=dict, run=block
        )
        pure = replace(blocking, name="quick", run=quick, effect=Effect.PURE)
        return [blocking, replace(blocking, name="pure_block", effect=Effect.PURE), pure]


async def stop_in_the_model_call(stage: Stage, request: Request) -> Answer:
    if request.turn == 0:
        return [call("quick")]
    if request.tools:
        await stage.wait()
    return "summary"


async def stop_in_the_first_model_call(stage: Stage, request: Request) -> Answer:
    if request.tools:
        await stage.wait()
    return "summary"


async def stop_in_a_call(stage: Stage, request: Request) -> Answer:
    return [call("block")] if request.tools else "summary"


async def stop_among_parallel_calls(stage: Stage, request: Request) -> Answer:
    calls = [call("quick"), call("pure_block"), call("none"), call("todo", todos=[])]
    return [*calls, call("block"), call("block")] if request.tools else "summary"


async def stop_in_a_child(stage: Stage, request: Request) -> Answer:
    if not request.tools:
        return f"summary of {request.prompt}"
    if request.prompt == "PARENT":
        tasks = [call("task", prompt="CHILD"), call("task", prompt="CHILD"), call("quick")]
        return "all said" if request.turn else tasks
    return [call("quick"), call("block")] if request.turn else [call("quick")]


async def stop_in_the_model_call_of_a_child(stage: Stage, request: Request) -> Answer:
    if request.prompt == "PARENT":
        tasks = [call("task", prompt="CHILD 0"), call("task", prompt="CHILD 1")]
        if not request.tools:
            return "summary"
        return "all said" if request.turn else tasks
    if request.prompt == "CHILD 1" and request.tools:
        await stage.wait()
    return "The child is done."


async def after_the_goal(stage: Stage, request: Request) -> Answer:
    return "done" if request.tools else "summary"


class WaitingHooks(Hooks):
    """Hooks that wait before the goal is confirmed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def before_finish(self, brief: Brief, text: str) -> str:
        await self._stage.wait()
        return ""


PLACES = [
    stop_in_the_model_call,
    stop_in_the_first_model_call,
    stop_in_a_call,
    stop_among_parallel_calls,
    stop_in_a_child,
    stop_in_the_model_call_of_a_child,
    after_the_goal,
]
STOPS: dict[str, Callable[[Session], object]] = {
    "cancel": lambda session: session.runs.cancel(),
    "wrap up": lambda session: session.runs.wrap_up("1"),
    "wrap up with a message": lambda session: (
        session.runs.send("1", "Be quick."),
        session.runs.wrap_up("1"),
    ),
    "cancel after wrap up": lambda session: (session.runs.wrap_up("1"), session.runs.cancel()),
    "time": lambda session: None,
}


def record(
    folder: Path,
    answer: Callable[[Stage, Request], object],
    stop: Callable[[Session], object],
    *,
    seconds: float | None = None,
) -> tuple[Report, list[StoredEvent]]:
    """Run on virtual time; stop the run at its place; return the report and the record."""
    journal = MemoryJournal()

    async def work() -> Report:
        stage = Stage()
        session = Session(
            model=ScriptedModel(lambda request: answer(stage, request)),  # pyright: ignore
            cwd=str(folder),
            home=str(folder / "home"),
            journal=journal,
            tools=stage.make_tools(),
            integrations=Integrations(
                hooks=WaitingHooks(stage) if answer is after_the_goal else None
            ),
            prompt_budget=Budget(seconds=seconds),
        )
        async with session:
            running = asyncio.create_task(session.run("PARENT"))
            await stage.arrived.wait()
            await asyncio.sleep(1)
            stop(session)
            return await running

    return run_virtual(work()), journal.events


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_run_that_was_stopped_replays(
    tmp_path: Path, place: Callable[[Stage, Request], object], stop: str
) -> None:
    seconds = SECONDS if stop == "time" else None
    report, events = record(tmp_path, place, STOPS[stop], seconds=seconds)
    has_children = place in (stop_in_a_child, stop_in_the_model_call_of_a_child)
    if seconds and has_children:  # children stop early enough for the answer of their parent
        assert (report.reason, report.text) == (Reason.GOAL, "all said")
    else:
        assert report.reason is (Reason.TIMEOUT if seconds else Reason.CANCELLED)
    assert asyncio.run(replay(events)) == events


def test_a_changed_report_of_a_stopped_run_does_not_replay(tmp_path: Path) -> None:
    _, events = record(tmp_path, stop_in_a_child, STOPS["cancel"])
    place = next(n for n, event in enumerate(events) if isinstance(event, RunFinished))
    end = events[place]
    assert isinstance(end, RunFinished)
    events[place] = replace(end, report=replace(end.report, text="another text"))
    with pytest.raises(ReplayDiverged, match="another text"):
        asyncio.run(replay(events))


def test_a_missing_step_of_a_stopped_run_does_not_replay(tmp_path: Path) -> None:
    _, events = record(tmp_path, stop_among_parallel_calls, STOPS["cancel"])
    del events[
        next(
            place
            for place, event in enumerate(events)
            if isinstance(event, ToolCallFinished) and not event.refused
        )
    ]
    with pytest.raises(ReplayDiverged):
        asyncio.run(replay(events))


class SlowJournal(MemoryJournal):
    """A journal that takes a second after it has stored the start of a call.

    Attributes:
        on_start: called while the journal stores it.
    """

    on_start: Callable[[], object]

    async def append(self, *events: StoredEvent) -> int:
        position = await super().append(*events)
        if any(isinstance(event, ToolCallStarted) for event in events):
            asyncio.get_running_loop().call_soon(self.on_start)
            await asyncio.sleep(1)
        return position


def test_a_cancel_while_the_start_of_a_refused_call_is_stored_replays(tmp_path: Path) -> None:
    journal = SlowJournal()

    async def work() -> Report:
        async with Session(
            model=ScriptedModel([[call("no_such_tool")], "never"]),
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            journal=journal,
        ) as session:
            journal.on_start = session.runs.cancel
            return await session.run("PARENT")

    assert run_virtual(work()).reason is Reason.CANCELLED
    results = [event for event in journal.events if isinstance(event, ToolCallFinished)]
    assert [result.refused for result in results] == [True]
    assert asyncio.run(replay(journal.events)) == journal.events


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize(
    "budget",
    [
        Budget(seconds=1),
        Budget(turns=7),
        Budget(total_tokens=1_500),
        Budget(turns=9, seconds=2, total_tokens=3_000),
    ],
)
def test_tasks_of_a_map_that_end_by_the_limits_of_the_session_replay(
    tmp_path: Path, budget: Budget, parallel: int
) -> None:
    async def answer(request: Request) -> Answer:
        await asyncio.sleep(0.1 * (len(request.prompt) % 7 + request.turn))
        return [call("glob", pattern=f"{request.turn}*")] if request.tools else "summary"

    store = MemoryStore()
    session_id = str(uuid.uuid4())

    async def work(count: int, options: dict[str, Any]) -> None:
        async with Session(
            model=ScriptedModel(answer),
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            store=store,
            sandbox="off",
            budget=budget,
            **options,
        ) as session:
            await session.map(["TASK" * n for n in range(1, count + 1)], parallel=parallel)

    run_virtual(work(6, {"id": session_id}))
    run_virtual(work(3, {"resume": session_id}))
    events = asyncio.run(read_events(store, session_id))
    ends = [event.report.reason for event in events if isinstance(event, RunFinished)]
    assert len(ends) == 9 and Reason.GOAL not in ends
    assert asyncio.run(replay(events)) == events


async def test_a_fault_of_a_model_adapter_replays(tmp_path: Path) -> None:
    def fail(request: Request) -> Answer:
        if request.prompt == "CHILD" or request.turn:
            raise RuntimeError("the adapter is broken")
        return call("task", prompt="CHILD")

    journal = MemoryJournal()
    async with Session(
        model=ScriptedModel(fail), cwd=str(tmp_path), home=str(tmp_path / "home"), journal=journal
    ) as session:
        with pytest.raises(RuntimeError):
            await session.run("PARENT")
    assert any(isinstance(event, TurnFailed) for event in journal.events)
    assert await replay(journal.events) == journal.events


async def test_watchers_receive_events_in_the_order_of_the_record(tmp_path: Path) -> None:
    shown: list[AnyEvent] = []
    journal = MemoryJournal()
    async with Session(
        model=ScriptedModel([" ", "done"]), cwd=str(tmp_path), journal=journal
    ) as session:
        session.watch(shown.append)
        await session.run("PARENT")
        stored = [event for event in journal.events if event.run]
    assert [event for event in shown if event.run and not isinstance(event, Delta)] == stored
