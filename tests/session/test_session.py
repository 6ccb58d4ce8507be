"""The front door for programs.

Prompts that go on, tasks and maps, typed outputs, watchers, and a record that cannot be written.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mudroom import (
    Agent,
    AnyEvent,
    Budget,
    JournalError,
    Reason,
    Session,
    TextBlock,
    ToolResultBlock,
    UsageError,
)
from mudroom._core.events import (
    RunFinished,
    SessionClosed,
    SessionOpened,
    StoredEvent,
    ToolCallStarted,
)
from mudroom.errors import UnknownName
from mudroom.journals.memory import MemoryJournal
from mudroom.models.scripted import Answer, Request, Script, ScriptedModel, call
from mudroom.testing.clock import run_virtual


@pytest.fixture
def apart(tmp_path: Path) -> dict[str, Any]:
    """Settings of a session that touches nothing of this machine's user."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("one\ntwo\n")
    return {
        "cwd": str(tmp_path / "work"),
        "home": str(tmp_path / "home"),
        "environ": {},
        "sandbox": "off",
        "journal": "memory",
    }


def opened(apart: dict[str, Any], script: Script = ("hello",), **settings: Any) -> Session:
    """A session with a scripted model."""
    given = dict[str, Any](model=ScriptedModel(script)) | apart | settings
    return Session(**given)


def words(request: Request) -> list[str]:
    return [
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, TextBlock | ToolResultBlock)
    ]


async def test_a_conversation_goes_on(apart: dict[str, Any]) -> None:
    model = ScriptedModel([[call("read", path="notes.txt")], "two lines", "I said two lines"])
    async with Session(model=model, **apart) as session:
        first, second = await session.run("how many lines?"), await session.run("what did you say?")
    assert (first.text, second.text, first.run_id, second.run_id) == (
        "two lines",
        "I said two lines",
        "1",
        "2",
    )
    said = words(model.requests[-1])
    assert (said[0], said[-2:]) == ("how many lines?", ["two lines", "what did you say?"])


async def test_prompts_are_taken_one_at_a_time(apart: dict[str, Any]) -> None:
    model = ScriptedModel(lambda request: f"answer {request.turn}")
    async with Session(model=model, **apart) as session:
        reports = await asyncio.gather(*(session.run(f"prompt {n}") for n in range(3)))
    assert [report.text for report in reports] == ["answer 0", "answer 1", "answer 2"]


async def test_a_task_runs_beside_the_conversation_in_a_context_of_its_own(
    apart: dict[str, Any],
) -> None:
    model = ScriptedModel(lambda request: f"heard {words(request)[-1]}")
    async with Session(model=model, **apart) as session:
        await session.run("a secret")
        report = await session.task("a task", agent="explore")
        after = await session.run("go on")
    assert (report.text, report.agent, after.text) == ("heard a task", "explore", "heard go on")
    assert words(model.requests[1]) == ["a task"] and model.requests[1].tools == (
        "read",
        "glob",
        "grep",
        "todo",
    )
    assert words(model.requests[2]) == ["a secret", "heard a secret", "go on"]


def test_map_runs_so_many_at_a_time_and_keeps_the_order(apart: dict[str, Any]) -> None:
    flying, peak = 0, 0

    async def answer(request: Request) -> str:
        nonlocal flying, peak
        flying += 1
        peak = max(peak, flying)
        await asyncio.sleep(10 - int(request.prompt))
        flying -= 1
        return f"did {request.prompt}"

    async def story() -> list[str]:
        async with Session(model=ScriptedModel(answer), **apart) as session:
            return [
                report.text for report in await session.map([str(n) for n in range(9)], parallel=4)
            ]

    assert run_virtual(story()) == [f"did {n}" for n in range(9)] and peak == 4


@dataclass
class Count:
    """What is asked for."""

    lines: int
    file: str


def emits(**values: Any) -> list[Any]:
    return [
        call("self.emitvalue", emit_variable_name=name, emit_variable_value=value)
        for name, value in values.items()
    ]


async def test_typed_outputs_come_back_as_their_type(apart: dict[str, Any]) -> None:
    model = ScriptedModel([emits(lines=2, file="notes.txt"), "never asked"])
    async with Session(model=model, **apart) as session:
        report = await session.task("count", outputs=Count)
    assert (
        report.outputs == Count(2, "notes.txt")
        and report.reason is Reason.GOAL
        and len(model.requests) == 1
    )


async def test_a_wrong_value_is_told_and_mended(apart: dict[str, Any]) -> None:
    model = ScriptedModel([emits(lines="two", file="notes.txt"), emits(lines=2)])
    async with Session(model=model, **apart) as session:
        report = await session.run("count", outputs=Count)
    assert report.outputs == Count(2, "notes.txt") and report.failed == 1
    assert "lines was not accepted" in model.requests[1].results[0].text


async def test_too_many_wrong_values_are_an_error(apart: dict[str, Any]) -> None:
    model = ScriptedModel(lambda request: emits(lines="many " * (request.turn + 1)))
    async with Session(model=model, **apart) as session:
        report = await session.task("count", outputs=Count)
    assert report.reason is Reason.ERROR and "wrong 4 times" in report.error


async def test_missing_outputs_are_asked_for_by_name(apart: dict[str, Any]) -> None:
    model = ScriptedModel([emits(file="notes.txt"), "I am done", emits(lines=2)])
    async with Session(model=model, **apart) as session:
        report = await session.task("count", outputs={"lines": "how many", "file": "which"})
    assert report.ok and report.outputs == {"file": "notes.txt", "lines": "2"}
    assert "have not emitted these required outputs: lines." in words(model.requests[2])[-1]


async def test_watchers_see_every_event_in_order_until_they_stop(apart: dict[str, Any]) -> None:
    seen, journal = list[AnyEvent](), MemoryJournal()
    async with opened(apart, ["hello", "again"], journal=journal) as session:
        stop = session.watch(seen.append)
        await session.run("hi")
        stop()
        await session.run("hi")
    stored = [event for event in seen if isinstance(event, StoredEvent)]
    assert isinstance(stored[-1], RunFinished) and len({event.run for event in seen}) == 1
    recorded = journal.events
    assert recorded[1 : 1 + len(stored)] == stored
    assert isinstance(recorded[0], SessionOpened) and isinstance(recorded[-1], SessionClosed)


class FullDisk(MemoryJournal):
    """A journal that takes a number of events and no more."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    async def append(self, *events: StoredEvent) -> int:
        if len(self.events) + len(events) > self.room:
            raise JournalError(
                "the record cannot be written", where="disk", remedy="Make room."
            ) from OSError(errno.ENOSPC, "full")
        return await super().append(*events)


@pytest.mark.parametrize("room", range(1, 12))
async def test_journal_error_stops_the_run_before_any_unrecorded_effect(
    apart: dict[str, Any], room: int
) -> None:
    def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return (
                "end"
                if request.turn
                else [call("task", prompt="CHILD"), call("bash", command="echo x >> effects")]
            )
        return "done" if request.turn else [call("write", path="new.txt", content="x")]

    journal, shown = FullDisk(room), list[AnyEvent]()
    with pytest.raises(JournalError, match="Make room"):
        async with opened(apart, script, journal=journal) as session:
            session.watch(shown.append)
            await session.run("PARENT")
    begun = {event.call.name for event in journal.events if isinstance(event, ToolCallStarted)}
    folder = Path(apart["cwd"])
    assert (folder / "effects").exists() <= ("bash" in begun)
    assert (folder / "new.txt").exists() <= ("write" in begun)
    assert not [
        event for event in shown if isinstance(event, RunFinished) and event not in journal.events
    ], "nothing is called done"


async def test_the_prompt_budget_holds_for_each_prompt(apart: dict[str, Any]) -> None:
    def script(request: Request) -> Answer:
        return (
            [call("read", path="notes.txt", limit=request.turn + 1)] if request.tools else "so far"
        )

    async with Session(
        model=ScriptedModel(script), prompt_budget=Budget(turns=2), **apart
    ) as session:
        assert [(await session.run("read")).turns for _ in range(2)] == [3, 3]


def test_run_sync_is_for_programs_without_an_event_loop(apart: dict[str, Any]) -> None:
    assert Session.run_sync("hi", model=ScriptedModel(["hello"]), **apart).text == "hello"


async def test_an_agent_of_ones_own_may_take_the_prompts(apart: dict[str, Any]) -> None:
    model = ScriptedModel(["hello"])
    async with Session(
        model=model, agent=Agent(name="guide", instructions="You guide.", tools=("read",)), **apart
    ) as session:
        report = await session.run("hi")
    assert (
        report.agent == "guide"
        and model.requests[0].tools == ("read",)
        and model.requests[0].system.startswith("You guide.")
    )


async def test_what_cannot_be_is_said_at_once_with_the_remedy(apart: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        await opened(apart, cwd="/nowhere/at/all").__aenter__()
    with pytest.raises(UnknownName, match="Did you mean anthropic"):
        await opened(apart, model="antropic:claude").__aenter__()
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY"):
        await opened(apart, model="anthropic:claude-sonnet-4-5").__aenter__()
    with pytest.raises(UsageError, match="async with"):
        await opened(apart).run("hi")
    async with opened(apart) as session:
        with pytest.raises(UsageError, match="empty"):
            await session.run(" \n")
        with pytest.raises(UnknownName, match="Did you mean explore"):
            await session.task("x", agent="exploer")


async def test_a_session_without_any_key_uses_the_offline_model_and_says_so(
    apart: dict[str, Any],
) -> None:
    async with opened(apart, model="auto") as session:
        assert session.model.startswith("offline")
        assert "ANTHROPIC_API_KEY" in session.notices[0] and "offline" in session.notices[0]
