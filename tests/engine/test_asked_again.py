"""Requests that the engine makes by itself end after a few, however the model words its answers.

Each script answers differently every time, so the detector of loops sees nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.engine.conftest import Stage

from mudroom import AssistantMessage, Integrations, Reason, TextBlock, Usage
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.messages import StopReason, ToolCallBlock
from mudroom._core.ports import Hooks
from mudroom._core.runs import Brief
from mudroom._engine.loop import MAX_ASKED
from mudroom._engine.loop_detection import STOP_AFTER
from mudroom._engine.structured_output import MAX_REMINDERS
from mudroom._replay import replay
from mudroom.permissions.rules import Permissions
from mudroom.testing import MemoryJournal


class NeverDone(Hooks):
    """A hook that lets no run end."""

    def __init__(self) -> None:
        self.count = 0

    async def before_finish(self, brief: Brief, text: str) -> str:
        self.count += 1
        return f"Not yet, {self.count}."


def stop_early(number: int, stop_reason: StopReason, tokens: int = 5) -> AssistantMessage:
    return AssistantMessage(
        (TextBlock(f"part {number}"),),
        usage=Usage(3, tokens),
        stop_reason=stop_reason,
        provider_stop_reason="pause",
    )


def talk(request: Request) -> Answer:
    return f"Done, {request.turn}."


def stop(request: Request) -> Answer:
    return stop_early(request.turn, StopReason.OTHER)


def be_cut_off(request: Request) -> Answer:
    """Fill whatever the request allows."""
    return stop_early(request.turn, StopReason.LENGTH, request.max_tokens or 100)


def be_empty(request: Request) -> Answer:
    return ""


def change_the_fault(request: Request) -> Answer:
    """An empty answer, one that the provider stopped, and so on in turn: none is twice in a row."""
    return "" if request.turn % 2 else stop_early(request.turn, StopReason.OTHER)


ALONE: dict[str, tuple[Callable[[Request], Answer], int, str]] = {
    "empty answers": (be_empty, 2, "the model gave an empty answer twice"),
    "answers that the provider stops": (
        stop,
        3,
        "the model stopped before its answer was complete (pause)",
    ),
    "answers of changing faults": (change_the_fault, MAX_ASKED + 1, "9 times in a row"),
}


@pytest.mark.parametrize("kind", ALONE)
async def test_answers_without_a_result_end_the_run(stage: Stage, kind: str) -> None:
    answer, requests, reason = ALONE[kind]
    journal = MemoryJournal()
    report = await stage.run(answer, journal=journal)
    assert report.reason is Reason.ERROR
    assert reason in report.error
    assert len(stage.model.requests) == requests
    await replay(journal.events)


async def test_a_child_whose_answers_are_always_cut_off_ends(stage: Stage) -> None:
    report = await stage.run(
        {"PARENT": [call("task", prompt="CHILD"), "sorry"], "CHILD": [be_cut_off]}
    )
    assert report.ok
    (child,) = [each for run, each in stage.reports.items() if "." in run]
    assert child.reason is Reason.ERROR
    assert "cut off" in child.error
    assert len(stage.list_requests("CHILD")) <= MAX_REMINDERS


async def test_a_hook_that_lets_no_run_end_is_heard_nine_times(stage: Stage) -> None:
    hooks = NeverDone()
    journal = MemoryJournal()
    report = await stage.run(talk, integrations=Integrations(hooks=hooks), journal=journal)
    assert report.reason is Reason.ERROR
    assert "9 times in a row" in report.error
    assert "Not yet, 10." in report.error
    assert len(stage.model.requests) == MAX_ASKED + 1
    await replay(journal.events)


async def test_work_between_two_notes_of_a_hook_begins_the_count_again(stage: Stage) -> None:
    """A hook may send a run back to work as often as it likes, as long as the run works."""

    class UntilTwenty(NeverDone):
        async def before_finish(self, brief: Brief, text: str) -> str:
            return "" if self.count == 20 else await super().before_finish(brief, text)

    def work(request: Request) -> Answer:
        if request.turn % 2:
            return f"Done, {request.turn}."
        return call("read", file_path="notes.txt", offset=request.turn + 1)

    report = await stage.run(work, integrations=Integrations(hooks=UntilTwenty()))
    assert report.ok
    assert report.turns == 42


REFUSED: dict[str, Callable[[int], list[ToolCallBlock]]] = {
    "denied": lambda n: [call("bash", command=f"echo {n}")],
    "denied side by side": lambda n: [call("bash", command=f"echo {n} {i}") for i in range(20)],
    "unknown": lambda n: [call(f"tool{n}")],
    "with wrong arguments": lambda n: [call("read", nothing=n)],
    "of all kinds": lambda n: [call("bash", command=f"echo {n}"), call(f"tool{n}")],
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_calls_that_are_never_possible_end_the_run(stage: Stage, kind: str) -> None:
    journal = MemoryJournal()

    def answer(request: Request) -> Answer:
        return REFUSED[kind](request.turn) if request.tools else "I could not."

    report = await stage.run(answer, permissions=Permissions.of(deny=["bash"]), journal=journal)
    assert (report.reason, report.text) == (Reason.LOOP, "I could not.")
    assert report.turns == STOP_AFTER + 1
    assert sum("None of the calls" in note for note in stage.list_notes()) == 2
    await replay(journal.events)


async def test_a_call_that_acts_begins_the_count_again(stage: Stage) -> None:
    def answer(request: Request) -> Answer:
        if request.turn == 3 * STOP_AFTER:
            return "Done."
        if request.turn % 3:
            return [call("bash", command=f"echo {request.turn}")]
        return [call("read", file_path="notes.txt", offset=request.turn + 1)]

    report = await stage.run(answer, permissions=Permissions.of(deny=["bash"]))
    assert report.ok
