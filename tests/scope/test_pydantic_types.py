"""Types with pydantic parts inside: each value is checked, repaired, and returned as the type."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from mudroom import OutputConfig, PromptConfig, Reason, ToolCallBlock
from mudroom._adapters.models.scripted import Answer, Request
from mudroom._engine.structured_output import parse_output_type
from mudroom._replay import replay
from mudroom.errors import UsageError
from mudroom.events import NoteInjected
from mudroom.testing import MemoryJournal

from .conftest import Open, emit
from .value_types import Book, Span


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Film(pydantic.BaseModel):
    kind: Literal["film"]
    minutes: pydantic.PositiveInt


class Song(pydantic.BaseModel):
    kind: Literal["song"]
    seconds: pydantic.PositiveInt


class Node(pydantic.BaseModel):
    book: Book
    children: list[Node] = []


@pydantic_dataclass
class Even:
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def check_number(cls, number: int) -> int:
        assert number % 2 == 0, "the number is odd"
        return number


@dataclasses.dataclass
class Shelf:
    books: list[Book]
    color: Color = Color.RED


@dataclasses.dataclass
class Room:
    shelf: Shelf


@dataclasses.dataclass
class Tree:
    book: Book
    parts: list[Tree] = dataclasses.field(default_factory=list["Tree"])


@dataclasses.dataclass
class Limited:
    count: int = pydantic.Field(gt=3)


class Row(TypedDict):
    book: Book


class Pair(NamedTuple):
    book: Book
    pages: int = 0


GOOD = {"title": "On Mud"}
BAD = {"title": "on mud"}
BOOK = Book(title="On Mud")
Media = Annotated[Film | Song, pydantic.Field(discriminator="kind")]
Positive = Annotated[int, pydantic.Field(gt=0)]


def check_even(number: int) -> int:
    if number % 2:
        raise ValueError("the number is odd")
    return number


class Form(NamedTuple):
    """A type, an output with a wrong and a right value, the typed value, and other values."""

    wanted: Any
    output: str
    wrong: Any
    right: Any
    expected: Any
    others: tuple[ToolCallBlock, ...] = ()

    @property
    def script(self) -> list[Answer]:
        first = [emit(self.output, self.wrong), *self.others]
        return [first, "Done.", [emit(self.output, self.right)], "Done."]


FORMS: dict[str, Form] = {
    "list of models": Form(list[Book], "result", [BAD], [GOOD], [BOOK]),
    "model or none": Form(Book | None, "result", BAD, GOOD, BOOK),
    "none of model or none": Form(Book | None, "result", BAD, None, None),
    "dict of models": Form(dict[str, Book], "result", {"a": BAD}, {"a": GOOD}, {"a": BOOK}),
    "dict with whole numbers as keys": Form(
        dict[int, Book], "result", {"1": BAD}, {"1": GOOD}, {1: BOOK}
    ),
    "union of models": Form(Film | Book, "result", BAD, GOOD, BOOK),
    "union with discriminator": Form(
        Media,
        "result",
        {"kind": "film", "minutes": -1},
        {"kind": "song", "seconds": 9},
        Song(kind="song", seconds=9),
    ),
    "model validator in a list": Form(
        list[Span],
        "result",
        [{"first": 2, "last": 1}],
        [{"first": 1, "last": 2}],
        [Span(first=1, last=2)],
    ),
    "dataclass": Form(
        Shelf, "books", [BAD], [GOOD], Shelf([BOOK], Color.BLUE), (emit("color", "blue"),)
    ),
    "dataclass in a dataclass": Form(
        Room, "shelf", {"books": [BAD]}, {"books": [GOOD]}, Room(Shelf([BOOK]))
    ),
    "list of pydantic dataclasses": Form(
        list[Even], "result", [{"number": 1}], [{"number": 2}], [Even(2)]
    ),
    "dataclass with a pydantic default": Form(Limited, "count", 3, 4, Limited(4)),
    "TypedDict": Form(Row, "book", BAD, GOOD, {"book": BOOK}),
    "NamedTuple": Form(Pair, "result", [BAD, 1], [GOOD, 1], Pair(BOOK, 1)),
    "tuple": Form(tuple[Book, Color], "result", [BAD, "red"], [GOOD, "blue"], (BOOK, Color.BLUE)),
    "model or enum": Form(Book | Color, "result", BAD, "red", Color.RED),
    "model or literal": Form(Book | Literal["none"], "result", "nothing", "none", "none"),
    "field constraint": Form(Positive, "result", 0, 3, 3),
    "function as validator": Form(
        Annotated[int, pydantic.AfterValidator(check_even)], "result", 3, 4, 4
    ),
    "recursive model": Form(
        list[Node],
        "result",
        [{"book": GOOD, "children": [{"book": BAD}]}],
        [{"book": GOOD, "children": [{"book": GOOD}]}],
        [Node(book=BOOK, children=[Node(book=BOOK)])],
    ),
    "recursive dataclass": Form(Tree, "book", BAD, GOOD, Tree(BOOK)),
    "names with a type each": Form(
        {"book": Book, "title": "a title"},
        "book",
        BAD,
        GOOD,
        {"book": BOOK, "title": "T"},
        (emit("title", "T"),),
    ),
}


@pytest.mark.parametrize("name", FORMS)
async def test_a_wrong_value_is_refused_and_the_right_one_comes_back_typed(
    name: str, scripted: Open
) -> None:
    form = FORMS[name]
    async with scripted(form.script) as (session, model):
        report = await session.task("Read it.", outputs=form.wanted)
    assert (report.reason, report.error) == (Reason.GOAL, "")
    assert report.outputs == form.expected
    assert type(report.outputs) is type(form.expected)
    assert "ot accepted: " in str(model.requests[-1].messages)


@pytest.mark.parametrize("name", ["dataclass", "names with a type each"])
async def test_a_resumed_run_ends_with_the_type_that_is_given_again(
    name: str, scripted: Open
) -> None:
    form = FORMS[name]
    journal = MemoryJournal()
    async with scripted(form.script, journal=journal) as (session, _):
        await session.run("Read it.", outputs=form.wanted)
    refusal = next(n for n, event in enumerate(journal.events) if isinstance(event, NoteInjected))
    interrupted = MemoryJournal()
    await interrupted.append(*journal.events[: refusal + 1])
    async with scripted(form.script, journal=interrupted, resume=session.id) as (resumed, model):
        report = await resumed.resume_unfinished(outputs=form.wanted)
    assert report and (report.reason, report.outputs) == (Reason.GOAL, form.expected)
    assert "ot accepted: " in str(model.requests[-1].messages)
    await replay(interrupted.events)


async def test_a_type_that_no_interrupted_run_was_given_is_refused(scripted: Open) -> None:
    journal = MemoryJournal()
    async with scripted([[emit("result", [GOOD])]], journal=journal) as (session, _):
        await session.run("Read it.", outputs=list[Book])
    interrupted = MemoryJournal()
    await interrupted.append(*journal.events[:4])
    async with scripted([[emit("result", [GOOD])]], journal=interrupted, resume=session.id) as (
        resumed,
        _,
    ):
        with pytest.raises(UsageError, match="no interrupted run has these outputs"):
            await resumed.resume_unfinished(outputs=list[Film])
        report = await resumed.resume_unfinished(outputs=list[Book])
        assert report and report.outputs == [BOOK]
        assert await resumed.resume_unfinished(outputs=list[Film]) is None


async def test_a_task_with_wrong_values_leaves_the_values_of_its_siblings_typed(
    scripted: Open,
) -> None:
    def answer(request: Request) -> Answer:
        return [emit("result", [{"title": request.prompt}])]

    async with scripted(answer) as (session, _):
        reports = await session.map(["One", "two", "Three"], outputs=list[Book])
    assert [report.reason for report in reports] == [Reason.GOAL, Reason.ERROR, Reason.GOAL]
    assert [reports[0].outputs, reports[2].outputs] == [[Book(title="One")], [Book(title="Three")]]
    assert reports[1].outputs == {}


async def test_values_of_a_worker_process_are_typed_in_the_process_of_the_session(
    scripted: Open,
) -> None:
    form = FORMS["dataclass"]
    async with scripted(form.script, worker="process:1") as (session, model):
        report = await session.task("Read it.", outputs=form.wanted)
    assert (report.reason, report.outputs) == (Reason.GOAL, form.expected)
    assert "ot accepted: " in str(model.requests[-1].messages)


async def test_a_scope_emits_names_with_a_type_each(scripted: Open) -> None:
    wanted = {"books": list[Book], "count": int, "color": Color, "title": "the title"}
    first = [emit("books", [BAD]), emit("count", 2), emit("color", "red"), emit("title", "T")]
    async with scripted([first, [emit("books", [GOOD])]]) as (session, model):
        output = await session.scope(
            "reader",
            PromptConfig(system_prompt="Read it."),
            output_config=OutputConfig(outputs=wanted),
        )
    assert output.terminate_reason is Reason.GOAL
    assert output.emitted_vars == {"books": [BOOK], "count": 2, "color": Color.RED, "title": "T"}
    assert "books: 0.title: Value error, the title must" in str(model.requests[1].messages[-1])


async def test_each_wrong_value_is_named_and_only_those_must_be_emitted_again(
    scripted: Open,
) -> None:
    wanted = {"book": Book, "other": Book, "title": "the title"}
    first = [emit("other", BAD), emit("book", BAD), emit("title", "T")]
    async with scripted([first, [emit("book", GOOD), emit("other", GOOD)]]) as (session, model):
        report = await session.task("Read it.", outputs=wanted)
    assert report.outputs == {"book": BOOK, "other": BOOK, "title": "T"}
    note = str(model.requests[1].messages[-1])
    assert note.index("book: title: ") < note.index("other: title: ")
    assert "emit again: book, other." in note


async def test_a_failed_run_has_plain_values_of_names_with_types(scripted: Open) -> None:
    answer = [emit("book", BAD), emit("color", "red")]
    async with scripted(lambda _: answer) as (session, _):
        report = await session.task("Read it.", outputs={"book": Book, "color": Color})
    assert (report.reason, report.outputs) == (Reason.ERROR, {"color": "red"})


async def test_a_type_of_msgspec_may_have_keys_that_are_no_texts(scripted: Open) -> None:
    async with scripted([[emit("result", {"1": "a"})]]) as (session, _):
        report = await session.task("Read it.", outputs=dict[int, str])
    assert report.outputs == {1: "a"}


class Struct(msgspec.Struct):
    book: Book


class Plain:
    """A class that no JSON value can become."""


@dataclasses.dataclass
class Unresolved:
    value: Nowhere  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable]  # noqa: F821


REFUSED: dict[str, tuple[Any, str]] = {
    "struct with a model": (Struct, "both pydantic parts and msgspec"),
    "model and Meta": (
        list[Annotated[Book, msgspec.Meta(description="a book")]],
        "both pydantic parts and msgspec",
    ),
    "unknown name": (Unresolved, "Nowhere"),
    "function": ({"a": check_even}, "not a type that JSON can hold"),
    "class": (Plain, "not a type that JSON can hold"),
    "class beside a model": (dict[str, Book | Plain], "pydantic-core schema"),
    "none as a type": ({"a": None}, "neither a description nor a JSON Schema"),
    "number as a type": ({"a": 5}, "not a type that JSON can hold"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_cannot_be_used_is_refused_with_the_reason(name: str) -> None:
    wanted, reason = REFUSED[name]
    with pytest.raises(UsageError, match=reason):
        parse_output_type(wanted)
