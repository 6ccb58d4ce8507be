"""Background work, cut off after each record: each end is read once, no limit is passed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mudroom import AnyEvent, Budget, Reason
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import (
    MessageDelivered,
    RunFinished,
    RunStarted,
    StoredEvent,
    TurnFinished,
)
from mudroom._replay import replay
from mudroom.testing.clock import VirtualLoop
from mudroom.testing.invariants import find_violations

from .conftest import Figure
from .killed import LONG
from .recorded import list_cuts, open_scripted, record_session, resume_record

CHILDREN = ("1.1.1", "1.1.2", "1.2.1")
TOKEN_LIMIT = 2_400
"""A limit that stops the tree: enough for the first request of the parent (about 1,290 tokens by
the engine's estimate), and less than all answers have."""


def count_notifications(request: Request) -> int:
    texts = [str(message.content) for message in request.messages]
    return sum(text.count("<task-id>") for text in texts)


def script(request: Request) -> Answer:
    """Answer from the messages alone; the parent ends when it has all three reports."""
    if request.prompt != "PARENT":
        return [[call("todo", todos=[])], f"{request.prompt} is done."][request.turn]
    if request.turn == 0:
        return [call("task", prompt=f"CHILD {name}", background=True) for name in "ab"]
    if request.turn == 1:
        return [call("task", prompt="CHILD c", background=True), call("todo", todos=[])]
    if count_notifications(request) < len(CHILDREN):
        return "I wait."
    return "All are done."


def check_record(events: list[StoredEvent]) -> None:
    """Check that each child started and that its report was read once."""
    assert not find_violations(events)
    started = Counter(event.run for event in events if isinstance(event, RunStarted))
    assert started == Counter(("1", *CHILDREN))
    read = Counter(event.message_id for event in events if isinstance(event, MessageDelivered))
    assert read == Counter(f"{run}#end" for run in CHILDREN)


@pytest.mark.timeout(600)
async def test_s11_each_report_is_read_once_after_a_cut_at_each_record(tmp_path: Path) -> None:
    budget = Budget(children=3, depth=1)
    whole, events = await record_session(tmp_path, script, budget=budget)
    check_record(events)
    assert await replay(events) == events
    for cut in list_cuts(events, 2):
        report, record = await resume_record(tmp_path / str(cut), events[:cut], script)
        check_record(record)
        assert report is None or report.text == whole.text


@pytest.mark.timeout(600)
async def test_s9_a_limit_of_a_background_tree_holds_after_a_cut_at_each_record(
    tmp_path: Path,
) -> None:
    """The charges equal the answers in the record; a limit is passed by one answer at most."""
    budget = Budget(children=3, depth=1, total_tokens=TOKEN_LIMIT)
    _, events = await record_session(tmp_path, script, prompt_budget=budget)
    check_charges(events)
    ends = [event.report.reason for event in events if isinstance(event, RunFinished)]
    assert Reason.BUDGET in ends
    for cut in list_cuts(events, 3):
        _, record = await resume_record(tmp_path / str(cut), events[:cut], script)
        check_charges(record)


def check_charges(events: list[StoredEvent]) -> None:
    """Check that the root run passes its limit by one answer at most."""
    assert not find_violations(events)
    reports = {event.run: event.report for event in events if isinstance(event, RunFinished)}
    answers = [event.message.usage for event in events if isinstance(event, TurnFinished)]
    spent = reports["1"].usage.total_tokens
    assert spent == sum(usage.total_tokens for usage in answers)
    assert spent <= TOKEN_LIMIT + max(usage.total_tokens for usage in answers)


def test_s10_a_run_ends_after_the_last_of_its_background_children(
    tmp_path: Path, figure: Figure
) -> None:
    draws = 200 if LONG else 20
    for seed in range(draws):
        chance = random.Random(seed)
        seconds = [chance.uniform(0, 60) for _ in range(chance.randint(1, 5))]
        events = run_in_virtual_time(tmp_path, seconds)
        ends = [event for event in events if isinstance(event, RunFinished)]
        assert len(ends) == 1 + len(seconds), f"seed {seed}"
        assert (ends[-1].run, ends[-1].report.reason) == ("1", Reason.GOAL), f"seed {seed}"
    figure("runs with background children of 0 to 60 s", f"{draws} end after their last child")


def test_s8_a_cancel_at_any_moment_ends_background_trees_of_three_levels(
    tmp_path: Path, figure: Figure
) -> None:
    moments = 500 if LONG else 40
    for seed in range(moments):
        moment = random.Random(seed).uniform(0, 12)
        events = run_in_virtual_time(tmp_path, [3.0, 5.0, 8.0], cancel_after=moment, is_deep=True)
        started = [event.run for event in events if isinstance(event, RunStarted)]
        ended = [event.run for event in events if isinstance(event, RunFinished)]
        assert sorted(started) == sorted(ended) and ended[-1] == "1", f"seed {seed}"
    figure("cancels of background trees of three levels", f"{moments} leave no run behind")


def run_in_virtual_time(
    folder: Path, seconds: list[float], *, cancel_after: float | None = None, is_deep: bool = False
) -> list[StoredEvent]:
    """Run a parent with background children that work for some seconds; return its events.

    Arguments:
        is_deep: true if each child has a background child of its own.
    """

    async def answer(request: Request) -> Answer:
        kind, _, rest = request.prompt.partition(" ")
        if kind == "PARENT" and request.turn == 0:
            return [call("task", prompt=f"CHILD {each}", background=True) for each in seconds]
        if kind == "CHILD" and is_deep and request.turn == 0:
            return [call("task", prompt=f"DEEP {rest}", background=True)]
        if kind != "PARENT":
            await asyncio.sleep(float(rest))
        return "I wait."

    async def run() -> list[StoredEvent]:
        events: list[StoredEvent] = []

        def watch(event: AnyEvent) -> None:
            if isinstance(event, StoredEvent) and event.run:
                events.append(event)

        loop = asyncio.get_running_loop()
        began = loop.time()
        options: dict[str, Any] = {"journal": "memory", "sandbox": "off"}
        async with open_scripted(folder, answer, budget=Budget(depth=2), **options) as session:
            session.watch(watch)
            running = asyncio.create_task(session.run("PARENT"))
            if cancel_after is not None:
                await asyncio.sleep(cancel_after)
                session.runs.cancel()
            await running
        seconds_taken = loop.time() - began
        if cancel_after is None:
            assert seconds_taken >= max(seconds) - 0.001
        else:
            assert seconds_taken <= cancel_after + 2
        return events

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())
