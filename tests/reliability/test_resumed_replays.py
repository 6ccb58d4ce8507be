"""Records cut off after every event: each is resumed, keeps the promises, and replays.

The short form cuts at some events; MUDROOM_LONG=1 cuts at each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from mudroom import Agent, Budget, Effect, Integrations, Reason, Report, Session, ToolResult
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.workers.local import LOST_COPY
from mudroom._adapters.workspaces import copy
from mudroom._core.agents import WorkspaceKind
from mudroom._core.events import (
    MessageDelivered,
    MessageSent,
    NoteInjected,
    RunFinished,
    RunStarted,
    StoredEvent,
)
from mudroom._core.messages import ToolCallBlock
from mudroom._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Approver,
    Hooks,
    ToolHookDecision,
)
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.errors import ModelRefused
from mudroom.testing.invariants import find_violations

from .killed import LONG
from .recorded import make_tool, open_scripted

OPEN_TODO = call("todo", todos=[{"content": "step", "status": "pending"}])


async def _echo(_: object, arguments: dict[str, str]) -> ToolResult:
    return ToolResult(f"echo {arguments['text']}")


ECHO = make_tool("echo", _echo, effect=Effect.PURE)


def echo(text: object) -> ToolCallBlock:
    return call("echo", text=str(text))


def plan_in_children(request: Request) -> Answer:
    if request.prompt == "PARENT":
        return [[call("task", prompt=f"CHILD {n}") for n in range(6)], "done"][request.turn]
    child = int(request.prompt[-1])
    if request.turn == 0:
        return [OPEN_TODO]
    return [echo(request.turn)] if request.turn < 5 + child else f"child {child} is done"


def plan(request: Request) -> Answer:
    if request.turn == 0:
        return [call("TodoWrite", items=[{"text": "step", "status": "pending"}])]
    return [echo(request.turn)] if request.turn < 9 else "done"


def fail_all_calls(request: Request) -> Answer:
    return [call("read", file_path="none"), call("none")] if request.turn < 3 else "done"


def repeat(request: Request) -> Answer:
    return [echo("same")] if request.tools else "summary"


def count(request: Request) -> Answer:
    return [echo(request.turn)] if request.tools else "summary"


def emit_late(request: Request) -> Answer:
    return [
        "I stop.",
        [call("self.emitvalue", emit_variable_name="a", emit_variable_value="1")],
        "I stop again.",
        [call("self.emitvalue", emit_variable_name="b", emit_variable_value="2")],
    ][request.turn]


def fail_then_answer(request: Request) -> Answer:
    return [echo(request.turn)] if request.turn < 2 else ModelRefused("no more answers")


def compact_steps(request: Request) -> Answer:
    return [[echo(1)], [echo(2), echo(3)], "done"][request.turn]


class NotingHooks(Hooks):
    """Hooks that add notes, change arguments and continue a run once."""

    def __init__(self) -> None:
        self.has_continued = False

    async def on_prompt(self, brief: Brief) -> str:
        return "Be brief."

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        return ToolHookDecision(arguments={"text": call.arguments["text"] + " changed"})

    async def before_finish(self, brief: Brief, text: str) -> str:
        return "" if text == "really done" else "Check it again."


def finish_twice(request: Request) -> Answer:
    return [[echo(1)], "done", [echo(2)], "really done"][request.turn]


class AllowingApprover:
    """Approver that allows each call."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(True)


def work_in_a_copy(request: Request) -> Answer:
    if request.prompt == "PARENT":
        return [[call("task", prompt="CHILD", agent="copier")], "done"][request.turn]
    write = call("write", file_path="a.txt", content="one")
    steps = [[write], [call("read", file_path="a.txt")]]
    return steps[request.turn] if request.turn < len(steps) else "child is done"


COPIER = Agent(
    name="copier",
    description="Tries things.",
    instructions="Try it.",
    workspace=WorkspaceKind.COPY,
)


class Scenario(Struct, frozen=True):
    """A run whose record is cut off: its script and its options."""

    script: Callable[[Request], Answer]
    budget: Budget = Budget()
    outputs: dict[str, str] | None = None
    hooks: Hooks | None = None
    approver: Approver | None = None
    needs_confirmation: bool = False
    message: str = ""

    def open(self, folder: Path, journal: MemoryJournal, resume: str = "") -> Session:
        """Return a session with the options of the scenario."""

        def answer(request: Request) -> Answer:
            is_sent = any(isinstance(event, MessageSent) for event in journal.events)
            if self.message and request.turn == 1 and not is_sent:
                session.runs.send("1", self.message)
            return self.script(request)

        session = open_scripted(
            folder,
            answer,
            journal=journal,
            budget=self.budget,
            sandbox="off",
            agents=[COPIER],
            tools=[replace(ECHO, needs_confirmation=self.needs_confirmation)],
            integrations=Integrations(hooks=self.hooks),
            approver=self.approver,
            resume=resume,
        )
        return session


SCENARIOS = {
    "children with a plan": Scenario(plan_in_children),
    "plan": Scenario(plan),
    "failed calls": Scenario(fail_all_calls),
    "repeated turns": Scenario(repeat),
    "turn limit with a warning": Scenario(count, Budget(turns=10)),
    "token limit": Scenario(count, Budget(total_tokens=1_500)),
    "outputs": Scenario(emit_late, outputs={"a": "text", "b": "text"}),
    "failed model": Scenario(fail_then_answer),
    "hooks": Scenario(finish_twice, hooks=NotingHooks()),
    "approvals": Scenario(compact_steps, approver=AllowingApprover(), needs_confirmation=True),
    "message": Scenario(compact_steps, message="One more thing."),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_record_cut_off_anywhere_is_resumed_and_replays(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    journal = MemoryJournal()
    async with scenario.open(tmp_path, journal) as session:
        expected = await session.run("PARENT", outputs=scenario.outputs)
    events = journal.events
    assert await replay(events) == events
    started = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    for cut in range(started, len(events) - 1, 1 if LONG else 3 if len(events) < 60 else 13):
        journal = MemoryJournal()
        await journal.append(*events[:cut])
        async with scenario.open(tmp_path, journal, session.id) as resumed:
            report = await resumed.resume_unfinished()
        check_resumed(events, journal.events, f"cut off after event {cut}: {events[cut - 1]}")
        if report:
            assert compare_report(report) == compare_report(expected)
        assert await replay(journal.events) == journal.events


def check_resumed(undisturbed: list[StoredEvent], resumed: list[StoredEvent], where: str) -> None:
    assert not find_violations(resumed, timed=False), where
    assert count_notes(resumed) == count_notes(undisturbed), where


def count_notes(events: list[StoredEvent]) -> Counter[tuple[str, str]]:
    return Counter((event.run, event.text) for event in events if isinstance(event, NoteInjected))


def list_lost_copies(events: list[StoredEvent]) -> list[str]:
    return [
        event.run
        for event in events
        if isinstance(event, MessageDelivered) and event.text.count(LOST_COPY)
    ]


async def test_a_child_whose_copy_was_lost_is_told_once_and_its_record_replays(
    tmp_path: Path,
) -> None:
    scenario = Scenario(work_in_a_copy)
    journal = MemoryJournal()
    async with scenario.open(tmp_path, journal) as session:
        await session.run("PARENT")
    events = journal.events
    started = [n for n, event in enumerate(events) if isinstance(event, RunStarted)]
    ended = next(n for n, event in enumerate(events) if isinstance(event, RunFinished))
    for cut in range(started[1] + 1, ended + 1):
        journal = MemoryJournal()
        await journal.append(*events[:cut])
        async with scenario.open(tmp_path, journal, session.id) as resumed:
            report = await resumed.resume_unfinished()
        where = f"cut off after event {cut}: {events[cut - 1]}"
        assert report and report.text == "done", where
        assert list_lost_copies(journal.events) == ["1.1.1"], where
        assert not find_violations(journal.events, timed=False), where
        assert await replay(journal.events) == journal.events, where
    assert not (tmp_path / "a.txt").exists()


async def test_a_copy_that_fails_after_a_resume_ends_the_child_with_an_error_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(work_in_a_copy)
    journal = MemoryJournal()
    (tmp_path / "large.txt").write_text("large")
    async with scenario.open(tmp_path, journal) as session:
        await session.run("PARENT")
    events = journal.events
    journal = MemoryJournal()
    child = [n for n, event in enumerate(events) if isinstance(event, RunStarted)][1]
    await journal.append(*events[: child + 6])
    monkeypatch.setattr(copy, "MAX_FILES", 0)
    async with scenario.open(tmp_path, journal, session.id) as session:
        await session.resume_unfinished()
    reports = {e.run: e.report for e in journal.events if isinstance(e, RunFinished)}
    assert reports["1.1.1"].reason is Reason.ERROR
    assert "too large for a copy" in reports["1.1.1"].error
    assert reports["1"].reason is Reason.GOAL
    assert not find_violations(journal.events, timed=False)
    assert await replay(journal.events) == journal.events


def compare_report(report: Report) -> tuple[object, ...]:
    return report.text, report.reason, report.turns, report.calls, report.error, report.outputs
