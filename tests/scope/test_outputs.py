"""Typed outputs: forms, types and schemas; values are checked, repaired, and converted."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from mudroom import Agent, Budget, Output, OutputConfig, PromptConfig, Reason, UsageError
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.output_declarations import SINGLE_OUTPUT, parse_outputs

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


NODE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}},
            "required": ["name"],
        }
    },
}
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
}
SINGLE_VALUES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "array"}, "x", []),
    ({"type": "array", "items": {"type": "integer"}}, ["x"], [1, 2]),
    ({"type": "object"}, [], {"any": "thing"}),
    ({"type": "string"}, 5, "text"),
    ({"type": "boolean"}, "yes", False),
    ({"type": ["integer", "null"]}, "x", None),
    ({"enum": ["red", "green"]}, "blue", "red"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", 0),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [], 7),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 2, 3),
    ({"$ref": "#/$defs/N", "$defs": {"N": {"type": "number"}}}, "x", 1.5),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "b"}, {"a": 1}),
    (PAIR, {}, {"b": 2}),
    ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, {"a": 1}, {"b": 1}),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}}, {"a": 1}, {"a": {"a": {}}}),
]


@pytest.mark.parametrize(
    ("schema", "wrong", "right"), SINGLE_VALUES, ids=[str(row[0])[:50] for row in SINGLE_VALUES]
)
async def test_a_schema_of_one_value_is_checked_and_the_report_has_the_value(
    schema: dict[str, Any], wrong: Any, right: Any, scripted: Open
) -> None:
    script = [[emit(SINGLE_OUTPUT, wrong)], [emit(SINGLE_OUTPUT, right)]]
    async with scripted(script) as (session, model):
        report = await session.task("Read it.", outputs=schema)
    assert model.requests[1].results[0].error
    assert report.reason is Reason.GOAL
    assert report.outputs == right


@dataclass
class Page:
    title: str
    data: Any


async def test_a_value_of_any_type_is_not_converted_to_text(scripted: Open) -> None:
    value = {"rows": [1, None]}
    fields = [emit("title", "Mud"), emit("data", value)]
    forms: list[tuple[Any, list[Any], Any]] = [
        (Page, fields, Page("Mud", value)),
        ({"type": "object", "properties": {"data": {}}}, [emit("data", value)], {"data": value}),
        ({"data": Any}, [emit("data", value)], {"data": value}),
        ({"data": {}}, [emit("data", 1)], {"data": 1}),
        (Any, [emit(SINGLE_OUTPUT, 1)], 1),
        ({"data": Output("a text")}, [emit("data", 1)], {"data": "1"}),
    ]
    for requested, answer, expected in forms:
        async with scripted([answer]) as (session, _):
            report = await session.task("Read it.", outputs=requested)
        assert report.outputs == expected


async def test_a_recursive_schema_of_an_object_has_one_output_per_field(scripted: Open) -> None:
    script = [[emit("next", {"name": 5})], [emit("next", {"name": "b"}), emit("name", "a")]]
    async with scripted(script) as (session, model):
        report = await session.task("Read it.", outputs=NODE)
    assert model.requests[1].results[0].error
    assert report.outputs == {"name": "a", "next": {"name": "b"}}


async def test_a_mapping_may_have_descriptions_schemas_and_outputs(scripted: Open) -> None:
    wanted = {
        "title": "the document's title",
        "pages": {"type": "integer", "description": "how many"},
        "author": Output("its author", {"type": "string", "minLength": 2}),
    }
    wrong = [emit("title", "T"), emit("pages", "three"), emit("author", "A")]
    async with scripted([wrong, [emit("pages", 3), emit("author", "Ada")]]) as (session, model):
        report = await session.task("Read it.", outputs=wanted)
    assert [result.error for result in model.requests[1].results] == [False, True, True]
    assert report.outputs == {"title": "T", "pages": 3, "author": "Ada"}


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        ({"type": "the kind of animal"}, ["type"]),
        ({"type": "the kind", "title": "the title"}, ["type", "title"]),
        ({"type": Output("string")}, ["type"]),
        ({"properties": "a list of properties"}, ["properties"]),
        ({"properties": {"type": "array"}}, ["properties"]),
        ({"enum": "the constant", "items": {"type": "array"}}, ["enum", "items"]),
        ({"title": "the title", "description": "one sentence"}, ["title", "description"]),
        ({"type": "string"}, [SINGLE_OUTPUT]),
        ({"properties": {"type": {"type": "string"}}}, ["type"]),
        ({"properties": {}}, [SINGLE_OUTPUT]),
        ({}, []),
    ],
    ids=str,
)
def test_the_rule_that_tells_schemas_from_names(declared: dict[str, Any], names: list[str]) -> None:
    assert list(parse_outputs(declared).outputs) == names


@pytest.mark.parametrize(
    ("declared", "remedy"),
    [
        ({"type": "arrray"}, "Did you mean array?"),
        ({"type": "String", "description": "a name"}, "Did you mean string?"),
        ({"type": "list", "items": {"type": "string"}}, "Known: array, boolean"),
        ({"type": "date"}, "Known: array, boolean"),
    ],
    ids=str,
)
async def test_a_schema_with_a_mistyped_type_is_refused(
    declared: dict[str, Any], remedy: str, scripted: Open
) -> None:
    prompt = PromptConfig(system_prompt="Read it.")
    async with scripted([]) as (session, model):
        with pytest.raises(UsageError, match=re.escape(f"is no JSON type. {remedy}")):
            await session.task("Read it.", outputs=declared)
        with pytest.raises(UsageError, match="is no JSON type"):
            await session.scope("a", prompt, output_config=OutputConfig(outputs=declared))
    assert not model.requests


async def test_a_type_without_named_fields_comes_back_as_that_type(scripted: Open) -> None:
    class Tags(pydantic.RootModel[list[str]]):
        pass

    async with scripted([[emit(SINGLE_OUTPUT, ["a"])], [emit(SINGLE_OUTPUT, [3])]]) as (session, _):
        tags = await session.task("Read it.", outputs=Tags)
        numbers = await session.task("Read it.", outputs=list[int])
    assert tags.outputs == Tags(["a"])
    assert numbers.outputs == [3]


async def test_a_scope_has_plain_values_and_its_report_typed_ones(scripted: Open) -> None:
    class Paper(pydantic.BaseModel):
        title: str
        pages: int

    prompt = PromptConfig(system_prompt="Read it.")
    script = [[emit("title", "T"), emit("pages", "three")], [emit("pages", 3)]]
    async with scripted(script) as (session, model):
        paper = await session.scope("a", prompt, output_config=OutputConfig(outputs=Paper))
    assert paper.emitted_vars == {"title": "T", "pages": 3}
    assert paper.report and paper.report.outputs == Paper(title="T", pages=3)
    assert len(model.requests) == 2


async def test_a_schema_of_one_value_in_an_agent_file_form(scripted: Open) -> None:
    agent = Agent(name="lister", outputs=parse_outputs({"type": "array"}).outputs)
    async with scripted([[emit(SINGLE_OUTPUT, "x")], [emit(SINGLE_OUTPUT, [1])]]) as (session, _):
        report = await session.task("List.", agent=agent)
    assert report.outputs == {SINGLE_OUTPUT: [1]}


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\ud800"], ids=ascii)
def test_an_output_name_that_a_prompt_cannot_show_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the output name"):
        parse_outputs({name: "what it is"})
