"""Typed outputs: types and schemas of Python programs.

Values are checked, repaired a bounded number of times, and converted to the type at the end.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from mudroom import Agent, Budget, Output, Reason, UsageError
from mudroom._adapters.models.scripted import Answer, Request, call

from .conftest import Open, emit


@dataclasses.dataclass
class Data:
    title: str
    pages: int = 0


class Struct(msgspec.Struct):
    title: str
    pages: int = 0


class Typed(TypedDict, total=False):
    title: str
    pages: int


class Model(pydantic.BaseModel):
    title: str
    pages: int = 0


SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "pages": {"type": "integer", "minimum": 0}},
    "required": ["title"],
}
INVALID_SCHEMA = {"type": "object", "properties": {"a": {"type": "nothing"}}}
REMOTE_SCHEMA = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/schema"}}}
TYPES: list[Any] = [Data, Struct, Typed, Model]


async def test_a_nested_type_is_checked_at_every_level(scripted: Open) -> None:
    @dataclasses.dataclass
    class Shelf:
        books: list[Struct]

    wrong = [{"title": "A"}, {"title": 5}]
    right = [{"title": "A"}, {"title": "B", "pages": 2}]
    async with scripted([[emit("books", wrong)], [emit("books", right)]]) as (session, model):
        report = await session.task("List.", outputs=Shelf)
    assert "[1].title" in model.requests[1].results[0].text
    assert report.outputs == Shelf([Struct("A"), Struct("B", 2)])


@pytest.mark.parametrize("wanted", [*TYPES, SCHEMA], ids=str)
async def test_a_wrong_value_is_an_error_with_path_and_reason_and_the_right_one_is_typed(
    scripted: Open, wanted: Any
) -> None:
    script = [[emit("title", "T"), emit("pages", "many")], [emit("pages", 2)]]
    async with scripted(script) as (session, model):
        report = await session.task("Read it.", outputs=wanted)
    result = model.requests[1].results[1]
    assert result.error
    assert "pages was not accepted" in result.text
    assert "many" in result.text
    values = {"title": "T", "pages": 2}
    assert report.outputs == (values if wanted in (Typed, SCHEMA) else wanted(**values))


async def test_a_limit_leaves_the_values_as_a_dict(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        return [emit("pages", 2)] if request.tools else "No title."

    async with scripted(answer) as (session, _):
        report = await session.task("Read it.", outputs=Data, budget=Budget(turns=2))
    assert report.reason is Reason.MAX_TURNS
    assert report.outputs == {"pages": 2}


async def test_map_gives_typed_reports_in_the_order_of_the_prompts(scripted: Open) -> None:
    def answer(request: Request) -> Answer:
        return "Done." if request.turn else [emit("title", request.prompt)]

    async with scripted(answer) as (session, _):
        reports = await session.map(["a", "b", "c"], outputs=Struct)
    assert [report.outputs for report in reports] == [Struct("a"), Struct("b"), Struct("c")]


async def test_outputs_of_a_child_reach_its_parent_model_as_json(scripted: Open) -> None:
    child = Agent(
        name="reader",
        description="reads",
        instructions="Read.",
        outputs={"title": Output("t"), "n": Output(schema={"type": "integer"})},
    )

    def answer(request: Request) -> Answer:
        if "self.emitvalue" in request.tools:
            return [emit("title", "On Mud"), emit("n", 3)]
        return "Thanks." if request.turn else [call("task", prompt="Read it.", agent="reader")]

    async with scripted(answer, agents=[child]) as (session, model):
        await session.run("Go.")
    assert 'Outputs: {"title":"On Mud","n":3}' in model.requests[-1].results[0].text


@pytest.mark.parametrize(
    "wanted",
    [
        object,
        {"a": 1},
        {1: "a"},
        {"type": "array", "items": {"type": "nothing"}},
        {"a": {"type": "nothing"}},
        "title",
        INVALID_SCHEMA,
        REMOTE_SCHEMA,
        {"$ref": "http://127.0.0.1:1/schema"},
    ],
    ids=str,
)
async def test_outputs_that_describe_no_values_are_refused_before_any_model_call(
    scripted: Open, wanted: Any
) -> None:
    async with scripted([]) as (session, model):
        with pytest.raises(UsageError, match="outputs"):
            await session.task("x", outputs=wanted)
    assert not model.requests
