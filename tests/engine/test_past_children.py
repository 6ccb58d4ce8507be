"""Children of an earlier process whose parent is stopped before they continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom import Budget, Compaction, Integrations, Reason, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import AnyEvent, RunFinished, RunResumed, TurnFinished
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._engine.compaction.summary import SUMMARY_PROMPT
from mudroom._replay import replay
from mudroom.ports import Hooks
from mudroom.testing import MemoryJournal
from mudroom.testing.invariants import find_violations


class EndHooks(Hooks):
    """Hooks that keep the ends of runs."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    async def on_run_end(self, brief: Any, report: Any) -> None:
        self.ends.append(f"{brief.run_id} {report.reason}")


def _cancel_when_resumed(session: Session) -> None:
    def cancel(event: AnyEvent) -> None:
        if isinstance(event, RunResumed):
            session.runs.cancel()

    session.watch(cancel)


def answer(request: Request) -> Answer:
    prompt = int(request.prompt.split()[0][1:])
    if request.turn or prompt == 2:
        return f"end of {prompt}"
    return [call("task", prompt=f"D{prompt + 1}", agent="general")]


@pytest.mark.parametrize("last", ["RunStarted", "TurnFinished", "RunFinished"])
async def test_they_end_before_it_and_their_tokens_are_charged(tmp_path: Path, last: str) -> None:
    options: dict[str, Any] = {"cwd": str(tmp_path), "home": str(tmp_path / "home")}
    options |= {"sandbox": "off", "prompt_budget": Budget(depth=3)}
    whole = MemoryJournal()
    async with Session(model=ScriptedModel(answer), journal=whole, **options) as session:
        await session.run("D0")
    kinds = [(type(event).__name__, event.run) for event in whole.events]
    journal, hooks = MemoryJournal(), EndHooks()
    await journal.append(*whole.events[: kinds.index((last, "1.1.1.1.1")) + 1])
    model = ScriptedModel(answer)
    resumed = Session(
        model=model,
        journal=journal,
        resume=session.id,
        integrations=Integrations(hooks=hooks),
        **options,
    )

    _cancel_when_resumed(resumed)
    async with resumed:
        report = await resumed.resume_unfinished()
    assert report and report.reason is Reason.CANCELLED and not model.requests
    ends = [event for event in journal.events if isinstance(event, RunFinished)]
    order = ["1.1.1.1.1", "1.1.1", "1"]
    assert [event.run for event in ends] == order
    stopped = order[1:] if last == "RunFinished" else order
    assert hooks.ends == [f"{run} CANCELLED" for run in stopped]
    answers = [event.message.usage for event in journal.events if isinstance(event, TurnFinished)]
    assert report.usage == sum(answers, Usage())
    assert len(answers) == (2 if last == "RunStarted" else 3)
    assert not find_violations(journal.events)
    assert await replay(journal.events) == journal.events


@pytest.mark.parametrize("last", ["RunStarted", "TurnFinished", "RunFinished"])
async def test_a_summary_that_is_no_longer_needed_ends_and_is_charged(
    tmp_path: Path, last: str
) -> None:
    """The run was killed beside its summary, and the next process has a larger window."""

    def answer_at_length(request: Request) -> Answer:
        usage = Usage(8_000 + request.turn, 10)
        if request.turn or SUMMARY_PROMPT in str(request.messages[-1]):
            return AssistantMessage((TextBlock("the end"),), StopReason.END, usage)
        blocks = (TextBlock("word " * 2_000), ToolCallBlock("c1", "todo", {"todos": []}))
        return AssistantMessage(blocks, StopReason.CALLS, usage)

    options: dict[str, Any] = {"cwd": str(tmp_path), "home": str(tmp_path / "home")}
    options |= {"sandbox": "off"}
    whole = MemoryJournal()
    model = ScriptedModel(answer_at_length)
    async with Session(
        model=model, journal=whole, compaction=Compaction(context_window=9_000), **options
    ) as session:
        await session.run("go")
    kinds = [(type(event).__name__, event.run) for event in whole.events]
    journal = MemoryJournal()
    await journal.append(*whole.events[: kinds.index((last, "1.1.c1")) + 1])
    options |= {"journal": journal, "resume": session.id}
    options["compaction"] = Compaction(context_window=200_000)
    async with Session(model=ScriptedModel(answer_at_length), **options) as session:
        report = await session.resume_unfinished()
    assert report and report.reason is Reason.GOAL
    answers = [event.message.usage for event in journal.events if isinstance(event, TurnFinished)]
    assert report.usage == sum(answers, Usage())
    assert len(answers) == (2 if last == "RunStarted" else 3)
    ends = [event.run for event in journal.events if isinstance(event, RunFinished)]
    assert sorted(ends) == ["1", "1.1.c1"]
    violations = [each.description for each in find_violations(journal.events)]
    assert violations == ["its parent continued without its notes"]  # it no longer needs them
    assert await replay(journal.events) == journal.events


@pytest.mark.parametrize("last", ["ToolCallFinished", "RunFinished"])
async def test_the_files_of_a_background_child_are_told_by_its_stopped_parent(
    tmp_path: Path, last: str
) -> None:
    (tmp_path / "a.txt").write_text("a")

    def start_a_reader(request: Request) -> Answer:
        if request.prompt == "look":
            return "seen" if request.turn else [call("read", file_path="a.txt")]
        if request.turn:
            return "started"
        return [call("task", prompt="look", agent="general", background=True)]

    options: dict[str, Any] = {"cwd": str(tmp_path), "home": str(tmp_path / "home")}
    options |= {"sandbox": "off"}
    whole = MemoryJournal()
    model = ScriptedModel(start_a_reader)
    async with Session(model=model, journal=whole, **options) as session:
        await session.run("go")
    kinds = [(type(event).__name__, event.run) for event in whole.events]
    journal = MemoryJournal()
    await journal.append(*whole.events[: kinds.index((last, "1.1.1")) + 1])
    resumed = Session(model=model, journal=journal, resume=session.id, **options)
    _cancel_when_resumed(resumed)
    async with resumed:
        report = await resumed.resume_unfinished()
    assert report and report.reason is Reason.CANCELLED
    assert report.files_read == ("a.txt",)
    assert not find_violations(journal.events)
    assert await replay(journal.events) == journal.events
