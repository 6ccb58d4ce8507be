"""Values that fit their schemas and that the requested type refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from mudroom import Reason
from mudroom._adapters.models.scripted import call
from mudroom._engine.structured_output import MAX_REPAIRS
from mudroom._replay import replay
from mudroom.events import NoteInjected
from mudroom.testing import MemoryJournal

from .conftest import Open, emit
from .value_types import Book, Span


@pydantic_dataclass
class PydanticDataclass:
    title: str

    @pydantic.field_validator("title")
    @classmethod
    def check_title(cls, title: str) -> str:
        assert title.istitle(), "no capital letter"
        return title


@dataclasses.dataclass
class PostInit:
    title: str

    def __post_init__(self) -> None:
        if not self.title.istitle():
            raise ValueError("no capital letter")


@dataclasses.dataclass
class KeyErrorInPostInit:
    title: str

    def __post_init__(self) -> None:
        {"On Mud": 1}[self.title]


class StructPostInit(msgspec.Struct):
    title: str

    def __post_init__(self) -> None:
        if not self.title.istitle():
            raise RuntimeError("no capital letter")


@dataclasses.dataclass
class Shelf:
    books: list[PostInit]


TITLED: list[type[Any]] = [Book, PydanticDataclass, PostInit, KeyErrorInPostInit, StructPostInit]


@pytest.mark.parametrize("wanted", TITLED, ids=lambda wanted: wanted.__name__)
async def test_a_value_that_only_its_type_refuses_is_repaired_a_bounded_number_of_times(
    wanted: type[Any], scripted: Open
) -> None:
    script = [[emit("title", "on mud")], [emit("title", "On Mud")]]
    async with scripted([*script, *script[:1] * 9]) as (session, model):
        report = await session.task("Read it.", outputs=wanted)
        failed = await session.run("Read it.", outputs=wanted)
    assert report.reason is Reason.GOAL
    assert report.outputs == wanted(title="On Mud")
    note = str(model.requests[1].messages[-1])
    assert "Not accepted: " in note
    assert "emit again: title." in note
    assert failed.reason is Reason.ERROR
    assert f"refused {MAX_REPAIRS + 1} times, the last time: " in failed.error
    assert len(model.requests) == 2 + MAX_REPAIRS + 1


@pytest.mark.parametrize("text", ["caf\udce9", "a\0b", "", "x" * 100_000], ids=ascii)
async def test_any_error_text_of_a_validator_reaches_the_model_clean(
    text: str, scripted: Open
) -> None:
    class Refusing(pydantic.BaseModel):
        title: str

        @pydantic.field_validator("title")
        @classmethod
        def check_title(cls, title: str) -> str:
            if title != "T":
                raise ValueError(text)
            return title

    @dataclasses.dataclass
    class RefusingDataclass:
        title: str

        def __post_init__(self) -> None:
            if self.title != "T":
                raise ValueError(text)

    journal = MemoryJournal()
    script = [[emit("title", "x")], [emit("title", "T")]] * 2
    async with scripted(script, journal=journal) as (session, model):
        for wanted in (Refusing, RefusingDataclass):
            report = await session.run("Read it.", outputs=wanted)
            assert report.outputs == wanted(title="T")
    for request in model.requests:
        msgspec.json.encode(request.messages)
    notes = [event.text for event in journal.events if isinstance(event, NoteInjected)]
    assert len(notes) == 2
    assert all(len(note) < 3_000 and note.encode() for note in notes)


async def test_the_error_names_the_last_refused_value_and_the_reason(scripted: Open) -> None:
    class Paper(pydantic.BaseModel):
        year: int

        @pydantic.field_validator("year")
        @classmethod
        def check_year(cls, year: int) -> int:
            if year < 1900:
                raise ValueError("too old")
            return year // (year - 2000)

    journal = MemoryJournal()
    async with scripted(lambda _: [emit("year", 1800)], journal=journal) as (session, _):
        old = await session.run("Read it.", outputs=Paper)
    async with scripted(lambda _: [emit("year", 2000)]) as (session, _):
        faulty = await session.run("Read it.", outputs=Paper)
    async with scripted(lambda _: [emit("year", "new")]) as (session, _):
        text = await session.run("Read it.", outputs=Paper)
    times = f"the emitted outputs were refused {MAX_REPAIRS + 1} times, the last time: "
    assert old.error == f"{times}year: Value error, too old"
    raised = "the validator raised ZeroDivisionError: integer division or modulo by zero"
    assert faulty.error == f"{times}{raised}"
    assert text.error == f'{times}year: "new" is not of type "integer"'
    await replay(journal.events)


async def test_a_wrong_combination_of_values_is_repaired(scripted: Open) -> None:
    script = [
        [emit("first", 5), emit("last", 3)],
        [call("read", file_path="paper.md")],
        "I am done.",
        [emit("last", 8)],
    ]
    async with scripted(script) as (session, model):
        report = await session.task("Read it.", outputs=Span)
    assert report.outputs == Span(first=5, last=8)
    assert "first is greater than last" in str(model.requests[1].messages[-1])
    assert "first is greater than last" in str(model.requests[3].messages[-1])


async def test_a_nested_value_that_its_type_refuses_names_its_output(scripted: Open) -> None:
    script = [[emit("books", [{"title": "on mud"}])], [emit("books", [{"title": "On Mud"}])]]
    async with scripted(script) as (session, model):
        report = await session.task("Read it.", outputs=Shelf)
    assert report.outputs == Shelf([PostInit("On Mud")])
    assert "books[0]: no capital letter" in str(model.requests[1].messages[-1])


async def test_the_type_is_asked_when_the_model_stops_with_optional_values_missing(
    scripted: Open,
) -> None:
    class Paper(Book):
        pages: int = 0

    script = [[emit("title", "on mud")], "Done.", [emit("title", "On Mud")], "Done."]
    async with scripted(script) as (session, _):
        report = await session.task("Read it.", outputs=Paper)
    assert report.outputs == Paper(title="On Mud")


async def test_the_record_of_a_refusal_replays(scripted: Open) -> None:
    journal = MemoryJournal()
    script = [[emit("title", "on mud")], [emit("title", "On Mud")], *([[emit("title", "x")]] * 4)]
    async with scripted(script, journal=journal) as (session, _):
        await session.run("Read it.", outputs=Book)
        failed = await session.run("Read it again.", outputs=Book)
    assert failed.reason is Reason.ERROR
    notes = [event for event in journal.events if isinstance(event, NoteInjected)]
    assert [note.refused for note in notes] == [("title",)] * 5
    await replay(journal.events)


async def test_a_resumed_run_still_misses_the_value_that_was_refused(scripted: Open) -> None:
    journal = MemoryJournal()
    script = [[emit("title", "on mud")], [emit("title", "On Mud")]]
    async with scripted(script, journal=journal) as (session, _):
        await session.run("Read it.", outputs=Book)
    refusal = next(n for n, event in enumerate(journal.events) if isinstance(event, NoteInjected))
    interrupted = MemoryJournal()
    await interrupted.append(*journal.events[: refusal + 1])
    later = ["Done.", [emit("title", "On Mud")]]
    async with scripted(later, journal=interrupted, resume=session.id) as (resumed, model):
        report = await resumed.resume_unfinished()
    assert report and report.outputs == {"title": "On Mud"}
    assert "outputs: title." in str(model.requests[1].messages[-1])
