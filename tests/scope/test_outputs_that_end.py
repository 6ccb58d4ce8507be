"""The end of a run with outputs: at once when it has them, after a few reminders if it never does.

No script here repeats itself: the detector of loops counts equal answers, and must not be needed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from mudroom import (
    Budget,
    Integrations,
    ModelError,
    OutputConfig,
    PromptConfig,
    Reason,
    Report,
    Session,
    tool,
)
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import NoteInjected, TurnFinished
from mudroom._core.runs import Brief
from mudroom._engine.structured_output import (
    MAX_REMINDERS,
    MAX_REPAIRS,
    MAX_REPEATS,
    REMINDER_START,
)
from mudroom._projections.stream_json import StreamJson
from mudroom._replay import replay
from mudroom.permissions.rules import Permissions
from mudroom.ports import Hooks
from mudroom.testing import MemoryJournal

from .conftest import Open, emit
from .value_types import Book

RETRIES_SUBTYPE = "error_max_structured_output_retries"


@dataclasses.dataclass
class Paper:
    title: str
    pages: int
    kind: str = "text"


@dataclasses.dataclass
class Numbers:
    a: int
    b: int
    c: int
    d: int


NAMES = ("a", "b", "c", "d")
BOTH = [emit("title", "T"), emit("pages", 3)]


@tool
def fail(number: int = 0) -> str:
    "Fail."
    raise ValueError(f"failed {number}")


def find_subtype(report: Report[Any]) -> str:
    lines = StreamJson(session="s", cwd="/", model="m", tools=(), agents=())
    return lines.make_result_line(report, {})["subtype"]


@pytest.mark.parametrize(
    "answer",
    [
        BOTH,
        [*BOTH, emit("kind", "text")],
        [emit("kind", "text"), *BOTH],
        [*BOTH, call("read", file_path="paper.md")],
    ],
    ids=["required only", "optional last", "optional first", "another call"],
)
async def test_a_run_ends_with_the_answer_that_has_the_last_required_value(
    scripted: Open, answer: Answer
) -> None:
    async with scripted([answer]) as (session, model):
        report = await session.task("Read it.", outputs=Paper)
    assert (report.reason, report.outputs) == (Reason.GOAL, Paper("T", 3))
    assert len(model.requests) == 1


async def test_optional_values_of_an_earlier_answer_count(scripted: Open) -> None:
    async with scripted([[emit("kind", "book")], BOTH]) as (session, _):
        report = await session.task("Read it.", outputs=Paper)
    assert report.outputs == Paper("T", 3, "book")


async def test_a_model_reads_the_failure_of_another_call_before_its_run_ends(
    scripted: Open,
) -> None:
    script = [[*BOTH, call("fail")], "It failed, but I have all I need."]
    async with scripted(script, tools=[fail]) as (session, model):
        report = await session.task("Read it.", outputs=Paper)
    assert model.requests[1].results[-1].error
    assert (report.reason, report.outputs) == (Reason.GOAL, Paper("T", 3))


@pytest.mark.parametrize("kind", ["limit", "fault"])
async def test_complete_values_are_typed_whatever_ends_the_run(scripted: Open, kind: str) -> None:
    def answer(request: Request) -> Answer:
        if request.number == 1:
            return [*BOTH, call("fail")]
        if kind == "fault":
            raise ModelError("the provider is gone")
        return "So far."

    budget = Budget(turns=1) if kind == "limit" else None
    async with scripted(answer, tools=[fail]) as (session, _):
        report = await session.task("Read it.", outputs=Paper, budget=budget)
    assert report.reason is (Reason.MAX_TURNS if kind == "limit" else Reason.ERROR)
    assert report.outputs == Paper("T", 3)
    assert not report.failed_outputs
    assert find_subtype(report) != RETRIES_SUBTYPE


async def test_an_optional_value_that_is_never_right_is_left_out(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        return [*BOTH, emit("kind", [request.number])]

    async with scripted(answer) as (session, model):
        report = await session.task("Read it.", outputs=Paper)
    assert (report.reason, report.outputs) == (Reason.GOAL, Paper("T", 3))
    assert len(model.requests) == MAX_REPAIRS + 1


class OneNote(Hooks):
    """Hooks that keep a run from its end once."""

    def __init__(self) -> None:
        self.notes = ["Say what you read."]

    async def before_finish(self, brief: Brief, text: str) -> str:
        return self.notes.pop() if self.notes else ""


@pytest.mark.parametrize("reason", ["failed call", "hook"])
async def test_a_run_without_an_optional_value_goes_on_for_another_reason(
    scripted: Open, reason: str
) -> None:
    def answer(request: Request) -> Answer:
        if request.number > MAX_REPAIRS + 1:
            return "I read the paper."
        calls = [*BOTH, emit("kind", [request.number])]
        return [*calls, call("fail")] if reason == "failed call" else calls

    integrations = Integrations(hooks=OneNote() if reason == "hook" else None)
    async with scripted(answer, tools=[fail], integrations=integrations) as (session, model):
        report = await session.task("Read it.", outputs=Paper)
    assert (report.reason, report.outputs) == (Reason.GOAL, Paper("T", 3))
    assert len(model.requests) == MAX_REPAIRS + 2


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_wrong_values_of_one_answer_are_one_refusal(scripted: Open, count: int) -> None:
    def answer(request: Request) -> Answer:
        is_last = request.number == MAX_REPAIRS + 1
        return [
            emit(name, n if is_last or n >= count else f"no {request.number}")
            for n, name in enumerate(NAMES)
        ]

    async with scripted(answer) as (session, model):
        report = await session.task("Count.", outputs=Numbers)
    assert report.outputs == Numbers(0, 1, 2, 3)
    assert all(result.error for result in model.requests[1].results[:count])


WRONG: dict[str, Callable[[int], Any]] = {
    "another value": lambda n: emit("a", f"wrong {n}"),
    "another name": lambda n: emit(f"name{n}", n),
    "no value": lambda n: call("self.emitvalue", emit_variable_name="a", other=n),
    "no name": lambda n: call("self.emitvalue", emit_variable_value=n),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_emissions_that_are_never_right_end_the_run(scripted: Open, wrong: str) -> None:
    journal = MemoryJournal()

    def answer(request: Request) -> Answer:
        return [WRONG[wrong](request.number), call("read", file_path="a", offset=request.number)]

    async with scripted(answer, journal=journal) as (session, model):
        report = await session.run("Count.", outputs=Numbers)
    assert report.reason is Reason.ERROR
    assert f"refused {MAX_REPAIRS + 1} times" in report.error
    assert report.failed_outputs == NAMES
    assert find_subtype(report) == RETRIES_SUBTYPE
    assert len(model.requests) == MAX_REPAIRS + 1
    await replay(journal.events)


def emit_again(request: Request) -> Answer:
    return [emit("title", f"T{request.number}")]


def emit_optional(request: Request) -> Answer:
    return [emit("kind", f"kind {request.number}")]


def emit_two(request: Request) -> Answer:
    return [emit("title", f"T{request.number}"), emit("kind", f"kind {request.number}")]


@pytest.mark.parametrize(
    ("answer", "door"), [(emit_again, "task"), (emit_optional, "run"), (emit_two, "scope")]
)
async def test_a_model_that_only_emits_the_same_outputs_again_ends(
    scripted: Open, answer: Callable[[Request], Answer], door: str
) -> None:
    journal = MemoryJournal()
    async with scripted(answer, journal=journal) as (session, model):
        report = await run_door(session, door, Paper)
    assert len(model.requests) == MAX_REPEATS + 2
    assert report.reason is Reason.ERROR
    assert f"its last {MAX_REPEATS + 1} answers emitted others again" in report.error
    assert "pages" in report.failed_outputs
    assert find_subtype(report) == RETRIES_SUBTYPE
    await replay(journal.events)


async def test_a_model_that_has_only_optional_outputs_to_emit_reaches_its_goal(
    scripted: Open,
) -> None:
    @dataclasses.dataclass
    class Optional:
        a: str = "x"
        b: int = 1

    async with scripted(lambda request: [emit("a", f"v{request.number}")]) as (session, model):
        report = await session.task("Read it.", outputs=Optional)
    assert (report.reason, report.outputs) == (Reason.GOAL, Optional(f"v{MAX_REPEATS + 2}"))
    assert len(model.requests) == MAX_REPEATS + 2


@pytest.mark.parametrize("is_beside", [True, False])
async def test_a_run_that_works_may_emit_an_output_again_and_again(
    scripted: Open, is_beside: bool
) -> None:
    def answer(request: Request) -> Answer:
        number = request.number
        if number > 4 * MAX_REPEATS:
            return BOTH
        work = call("todo", todos=[{"content": f"step {number}", "status": "pending"}])
        if is_beside:
            return [emit("kind", f"kind {number}"), work]
        return [emit("kind", f"kind {number}") if number % MAX_REPEATS else work]

    async with scripted(answer) as (session, _):
        report = await session.task("Read it.", outputs=Paper)
    assert report.reason is Reason.GOAL


async def test_an_emission_that_is_denied_ends_the_run(scripted: Open) -> None:
    denied = Permissions.of(deny=["self.emitvalue"])
    async with scripted(lambda request: [emit("a", request.number)], permissions=denied) as (
        session,
        model,
    ):
        report = await session.task("Count.", outputs=Numbers)
    assert report.reason is Reason.ERROR
    assert "not allowed" in report.error
    assert len(model.requests) == MAX_REPAIRS + 1


async def test_a_run_that_gets_on_may_repair_each_of_its_values(scripted: Open) -> None:
    """Models that make one call in an answer need more answers than there are repairs."""

    def answer(request: Request) -> Answer:
        number, is_right = divmod(request.number - 1, 2)
        return [emit(NAMES[number], number if is_right else "no")]

    async with scripted(answer) as (session, model):
        report = await session.task("Count.", outputs=Numbers)
    assert report.outputs == Numbers(0, 1, 2, 3)
    assert len(model.requests) == 2 * len(NAMES)


async def test_a_value_that_its_type_refuses_and_another_are_one_refusal(scripted: Open) -> None:
    class Paged(Book):
        pages: int

    def answer(request: Request) -> Answer:
        return [emit("title", f"no {request.number}"), emit("pages", 1)]

    async with scripted(answer) as (session, model):
        report = await session.task("Read it.", outputs=Paged)
    assert report.reason is Reason.ERROR
    assert len(model.requests) == MAX_REPAIRS + 1
    assert report.failed_outputs == ("title",)
    assert report.outputs == {"pages": 1}


def say(request: Request) -> Answer:
    return f"I have done the work, number {request.turn}."


def work_and_say(request: Request) -> Answer:
    if request.turn % 2:
        return f"I have done the work, number {request.turn}."
    return [call("read", file_path="paper.md", offset=request.turn + 1)]


def emit_wrong(request: Request) -> Answer:
    return [emit("a", f"no {request.turn}")]


def state_wrong_json(request: Request) -> Answer:
    return json.dumps({"title": request.turn})


@pytest.mark.parametrize(
    ("answer", "door"), [(say, "task"), (work_and_say, "run"), (state_wrong_json, "scope")]
)
async def test_a_model_that_never_emits_gets_five_reminders(
    scripted: Open, answer: Callable[[Request], Answer], door: str
) -> None:
    journal = MemoryJournal()
    async with scripted(answer, journal=journal) as (session, model):
        report = await run_door(session, door, Paper)
    notes = [event.text for event in journal.events if isinstance(event, NoteInjected)]
    reminders = [note for note in notes if note.startswith(REMINDER_START)]
    assert len(reminders) == MAX_REMINDERS == 5
    assert report.reason is Reason.ERROR
    assert report.error == "the model did not emit title, pages after 5 reminders"
    assert report.failed_outputs == ("title", "pages")
    assert find_subtype(report) == RETRIES_SUBTYPE
    assert len(model.requests) <= 2 * (MAX_REMINDERS + 1)
    await replay(journal.events)


async def run_door(session: Session, door: str, wanted: Any) -> Report[Any]:
    if door == "task":
        return await session.task("Read it.", outputs=wanted)
    if door == "run":
        return await session.run("Read it.", outputs=wanted)
    output = await session.scope(
        "reader",
        PromptConfig(system_prompt="Read it."),
        output_config=OutputConfig(outputs=wanted),
        tool_config=None,
    )
    assert output.report
    return output.report


async def test_reminders_begin_again_when_a_value_is_accepted(scripted: Open) -> None:
    script: list[Answer] = []
    for name in NAMES:
        script += [f"Not yet, {len(script)}.", f"Not yet, {len(script) + 1}.", [emit(name, 1)]]
    async with scripted(script) as (session, _):
        report = await session.task("Count.", outputs=Numbers)
    assert report.outputs == Numbers(1, 1, 1, 1)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [(say, Numbers), (work_and_say, Numbers), (emit_wrong, Numbers), (emit_two, Paper)],
)
async def test_a_resumed_run_goes_on_counting(
    scripted: Open, answer: Callable[[Request], Answer], wanted: type[Any]
) -> None:
    journal = MemoryJournal()
    async with scripted(answer, journal=journal) as (session, _):
        whole = await session.run("Count.", outputs=wanted)
    answers = [n for n, event in enumerate(journal.events) if isinstance(event, TurnFinished)]
    for end in range(answers[0] + 1, answers[3] + 1):
        interrupted = MemoryJournal()
        await interrupted.append(*journal.events[:end])
        async with scripted(answer, journal=interrupted, resume=session.id) as (resumed, _):
            report = await resumed.resume_unfinished()
        assert report and report.reason is Reason.ERROR
        assert (report.turns, report.error) == (whole.turns, whole.error)
        assert report.failed_outputs == whole.failed_outputs
        await replay(interrupted.events)


PAPER = {"title": "T", "pages": 3}
STATED = {
    "bare": json.dumps(PAPER),
    "with space around": f"\n  {json.dumps(PAPER, indent=2)}\n",
    "in a fence": f"```json\n{json.dumps(PAPER)}\n```",
    "in a fence without a language": f"```\n{json.dumps(PAPER)}\n```",
    "in a fence of one line": f"```{json.dumps(PAPER)}```",
    "with words around": f"Here it is:\n\n```json\n{json.dumps(PAPER)}\n```\nAnything else?",
    "with numbers as text": json.dumps({"title": "T", "pages": "3"}),
    "with more fields": json.dumps({**PAPER, "author": "A. Boot"}),
}


@pytest.mark.parametrize("door", ["task", "run", "scope"])
async def test_json_in_the_last_answer_is_taken(scripted: Open, door: str) -> None:
    journal = MemoryJournal()
    async with scripted([*STATED.values()], journal=journal) as (session, model):
        reports = [await run_door(session, door, Paper) for _ in STATED]
    assert [each.reason for each in reports] == [Reason.GOAL] * len(STATED)
    assert [each.outputs for each in reports] == [Paper("T", 3)] * len(STATED)
    assert len(model.requests) == len(STATED)
    await replay(journal.events)


@pytest.mark.parametrize(
    "text",
    [
        "The title is T, and it has 3 pages.",
        json.dumps({"title": "T"}),
        json.dumps({"title": "T", "pages": "many"}),
        json.dumps([PAPER]),
        f"```\n{json.dumps(PAPER)}\n```\nor\n```\n{json.dumps(PAPER)}\n```",
        "[" * 100_000,
        "```" * 100_001,
        '{"title": "T", "pages": 1e999}',
    ],
    ids=["words", "one", "wrong", "a list", "two blocks", "deep", "fences", "no number"],
)
async def test_text_that_states_no_fitting_json_gets_a_reminder(scripted: Open, text: str) -> None:
    async with scripted([text, BOTH]) as (session, model):
        report = await session.task("Read it.", outputs=Paper)
    assert report.outputs == Paper("T", 3)
    reminder = str(model.requests[1].messages[-1])
    assert "outputs: title, pages." in reminder
    assert ('"many" is not of type' in reminder) == ("many" in text)


async def test_json_completes_what_was_emitted(scripted: Open) -> None:
    async with scripted([[emit("title", "T")], '{"pages": 3}']) as (session, _):
        report = await session.task("Read it.", outputs=Paper)
    assert report.outputs == Paper("T", 3)


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '["1", "2"]', [1, 2]),
        ({"type": "integer"}, "4", 4),
        ({"type": "string"}, '"word"', "word"),
        ({"type": "object"}, '{"result": 1}', {"result": 1}),
        ({"result": "the result"}, '{"result": "done"}', {"result": "done"}),
        ({"result": "the result"}, '"done"', {"result": "done"}),
        ({"a": "a text", "b": {"type": "integer"}}, '{"a": "007", "b": "7"}', {"a": "007", "b": 7}),
    ],
    ids=str,
)
async def test_json_of_one_value_is_taken(
    scripted: Open, wanted: Any, text: str, value: object
) -> None:
    async with scripted([text]) as (session, _):
        report = await session.task("Count.", outputs=wanted)
    assert (report.reason, report.outputs) == (Reason.GOAL, value)


async def test_json_that_the_type_refuses_is_repaired_a_bounded_number_of_times(
    scripted: Open,
) -> None:
    journal = MemoryJournal()
    script = ['{"title": "on mud"}', '{"title": "On Mud"}']
    async with scripted(script, journal=journal) as (session, model):
        report = await session.run("Read it.", outputs=Book)
    assert report.outputs == Book(title="On Mud")
    assert "must begin with a capital letter" in str(model.requests[1].messages[-1])
    await replay(journal.events)
    notes = [event for event in journal.events if isinstance(event, NoteInjected)]
    assert [note.refused for note in notes] == [("title",)]
    async with scripted(lambda request: f'{{"title": "no {request.number}"}}') as (session, model):
        report = await session.run("Read it.", outputs=Book)
    assert report.reason is Reason.ERROR
    assert len(model.requests) == MAX_REPAIRS + 1
