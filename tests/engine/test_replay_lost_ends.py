"""A run reaches its own end, and its process is killed before that is stored; then it is stopped.

The next process restores the run and ends it again, unless it is stopped first. Both replay.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mudroom import AssistantMessage, Budget, Integrations, Session, Usage
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunFinished, RunStarted, StoredEvent, TurnStarted
from mudroom._core.messages import StopReason, TextBlock
from mudroom._core.ports import Hooks
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.errors import ModelRefused, UsageError

from ..replay_trees import CountingJournal

LONG = bool(os.environ.get("MUDROOM_LONG"))
USAGE = Usage(100, 10)


def stop_early(reason: StopReason) -> Answer:
    return AssistantMessage((TextBlock("a part"),), reason, USAGE)


ENDS: dict[str, Callable[[Request], Answer]] = {
    "goal": lambda request: "done",
    "two empty answers": lambda request: "" if request.tools else "summary",
    "a cut answer": lambda request: stop_early(StopReason.LENGTH),
    "a refused answer": lambda request: stop_early(StopReason.REFUSAL),
    "a loop": lambda request: [call("glob", pattern="*")] if request.tools else "summary",
    "a failed request": lambda request: ModelRefused("no more answers"),
    "a failed request after a call": lambda request: (
        ModelRefused("no more answers") if request.turn else [call("no_such_tool")]
    ),
    "its turns": lambda request: (
        [call("glob", pattern=f"{request.turn}*")] if request.tools else ModelRefused("no summary")
    ),
    "asked too often": lambda request: f"words {request.turn}",
}
"""Answers of the run, by what ends it."""

PLACES = ("root", "child", "background child")

ACTS: dict[str, Callable[[Session, str], object]] = {
    "nothing": lambda session, run: None,
    "cancel": lambda session, run: session.runs.cancel(run),
    "cancel all": lambda session, run: session.runs.cancel(),
    "wrap up": lambda session, run: session.runs.wrap_up(run),
    "message": lambda session, run: session.runs.send(run, "one more thing"),
    "interrupt": lambda session, run: session.interrupt() and session.runs.send("1", "Go on."),
}


STEPS = (0, 4, 12)
"""Of the event loop, after which the user acts. The short form takes one for each act, in turn."""


class AskingHooks(Hooks):
    """Hooks that ask a run to go on each time it is done."""

    async def before_finish(self, brief: Brief, text: str) -> str:
        return "go on" if brief.prompt == "SUBJECT" else ""


class Case:
    """A session with the run SUBJECT.

    Arguments:
        end: what ends the run. place: which run it is.
    """

    def __init__(self, folder: Path, end: str, place: str) -> None:
        self._folder = folder
        self._end = end
        self._place = place
        self.session_id = str(uuid.uuid4())

    def answer(self, request: Request) -> Answer:
        if request.prompt == "SUBJECT":
            return ENDS[self._end](request)
        if request.turn or not request.tools:
            return "all said"
        turns = {"max_turns": 2} if self._end == "its turns" else {}
        is_background = self._place == "background child"
        return [call("task", prompt="SUBJECT", background=is_background, **turns)]

    def open(self, journal: CountingJournal, **options: Any) -> Session:
        hooks = AskingHooks() if self._end == "asked too often" else None
        is_limited = self._end == "its turns" and self._place == "root"
        return Session(
            model=ScriptedModel(self.answer),
            cwd=str(self._folder),
            home=str(self._folder / "home"),
            environ={},
            sandbox="off",
            journal=journal,
            integrations=Integrations(hooks=hooks),
            prompt_budget=Budget(turns=2) if is_limited else Budget(),
            **options,
        )

    async def record_lost_end(self) -> list[StoredEvent]:
        """Return the record of a process that was killed before the end of the run was stored."""
        journal = CountingJournal()
        async with self.open(journal, id=self.session_id) as session:
            await session.run("SUBJECT" if self._place == "root" else "PARENT")
        events = journal.events
        run = next(
            event.run
            for event in events
            if isinstance(event, RunStarted) and event.brief.prompt == "SUBJECT"
        )
        end = next(n for n, each in enumerate(events) if _is_end(each, run))
        return events[: max(cut for cut in journal.ends if cut <= end)]

    async def go_on(
        self, events: list[StoredEvent], act: Callable[[Session, str], object], steps: int
    ) -> list[StoredEvent]:
        """Return the record after the next process, in which the user acts after some steps."""
        run = events[-1].run
        for event in events:
            if isinstance(event, RunStarted) and event.brief.prompt == "SUBJECT":
                run = event.run
        journal = CountingJournal()
        await journal.append(*events)

        async with self.open(journal, resume=self.session_id) as session:
            going_on = asyncio.ensure_future(session.resume_unfinished())
            for _ in range(steps):
                await asyncio.sleep(0)
            with suppress(UsageError):
                act(session, run)
            await going_on
        return journal.events


def _is_end(event: StoredEvent, run: str) -> bool:
    return isinstance(event, RunFinished) and event.run == run


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("end", ENDS)
async def test_a_run_whose_own_end_was_lost_replays(tmp_path: Path, end: str, place: str) -> None:
    case = Case(tmp_path, end, place)
    events = await case.record_lost_end()
    assert await replay(events) == events
    first = list(ENDS).index(end) + PLACES.index(place)
    for number, (name, act) in enumerate(ACTS.items(), first):
        for steps in STEPS if LONG else [STEPS[number % len(STEPS)]]:
            record = await case.go_on(events, act, steps)
            assert await replay(record) == record, f"{name} after {steps} steps"


async def test_a_resumed_run_that_was_asked_too_often_asks_no_more(tmp_path: Path) -> None:
    case = Case(tmp_path, "asked too often", "root")
    events = await case.record_lost_end()
    record = await case.go_on(events, ACTS["nothing"], 0)
    assert [event for event in record[len(events) :] if isinstance(event, TurnStarted)] == []
    end = next(event for event in record if isinstance(event, RunFinished))
    assert "the model was asked 9 times in a row to go on" in end.report.error
