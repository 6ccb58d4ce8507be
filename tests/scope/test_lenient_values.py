"""One lenient reader: what models write is read alike at every door, and a text stays a text.

The doors are arguments of tools, emitted values of tasks and of scopes, and those of a JSON Schema.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, cast

import msgspec
import pytest

from mudroom import OutputConfig, PromptConfig, Session, Tool, ToolConfig, tool
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.tools.function import declare_tool
from mudroom._core.schemas import NOT_JSON, find_json, read_leniently
from mudroom._engine.structured_output import OutputCollector, parse_output_type

from .conftest import Open, emit

REFUSED: Any = object()


class Book(msgspec.Struct):
    title: str
    pages: int = 0


class Color(Enum):
    RED = "red"


class Level(Enum):
    LOW = 1


# A type, what the model writes, and what the program gets.
SPELLINGS: list[tuple[Any, Any, Any]] = [
    (int, 1, 1),
    (int, "1", 1),
    (int, "-1", -1),
    (int, "1.0", 1),
    (int, 1.0, 1),
    (int, " 1 ", 1),
    (int, "1.5", REFUSED),
    (int, "one", REFUSED),
    (int, "007", REFUSED),
    (int, "", REFUSED),
    (int, True, REFUSED),
    (int, "true", REFUSED),
    (int, [1], REFUSED),
    (int, "9" * 400, REFUSED),
    (float, "1.5", 1.5),
    (float, "1e3", 1000.0),
    (float, 1, 1.0),
    (float, "NaN", REFUSED),
    (float, "1e999", REFUSED),
    (bool, "true", True),
    (bool, "False", False),
    (bool, "1", True),
    (bool, 0, False),
    (bool, "yes", REFUSED),
    (str, "007", "007"),
    (str, "true", "true"),
    (str, "null", "null"),
    (str, '{"a":1}', '{"a":1}'),
    (str, "[1]", "[1]"),
    (str, 7, REFUSED),
    (list[str], ["x", "y"], ["x", "y"]),
    (list[str], '["x", "y"]', ["x", "y"]),
    (list[str], '```json\n["x"]\n```', ["x"]),
    (list[str], '["007"]', ["007"]),
    (list[str], "x", REFUSED),
    (list[int], '["1", 2]', [1, 2]),
    (list[int], ["1", "x"], REFUSED),
    (list[list[int]], '["[1]", [2]]', [[1], [2]]),
    (dict[str, int], '{"a": "1"}', {"a": 1}),
    (Book, '{"title": "007", "pages": "3"}', Book("007", 3)),
    (Book, {"title": "T", "pages": "3"}, Book("T", 3)),
    (Book, '{"title": 7}', REFUSED),
    (list[Book], '[{"title": "T"}]', [Book("T")]),
    (list[Book], ['{"title": "T"}'], [Book("T")]),
    (int | None, "1", 1),
    (int | None, "null", None),
    (str | None, "null", "null"),
    (int | str, "1", "1"),
    (int | str, 1, 1),
    (Book | None, '{"title": "T"}', Book("T")),
    (Color, "red", Color.RED),
    (Color, '"red"', Color.RED),
    (Level, "1", Level.LOW),
    (Any, "1", "1"),
    (Any, '{"a":1}', '{"a":1}'),
]

LAX = ("9" * 400, "NaN")
"""Texts that msgspec reads as numbers of Python where JSON has none."""

Read = Callable[[Session, str, Any], Awaitable[Any]]
"""Reads the value of a prompt as a type; REFUSED if it is not accepted."""


async def read_by_task(session: Session, prompt: str, kind: Any) -> Any:
    report = await session.task(prompt, outputs={"value": kind})
    return report.outputs["value"] if report.ok else REFUSED


async def read_by_scope(session: Session, prompt: str, kind: Any) -> Any:
    config = OutputConfig(outputs={"value": kind})
    output = await session.scope("a", PromptConfig(system_prompt=prompt), output_config=config)
    is_read = output.report is not None and output.report.ok
    return output.emitted_vars["value"] if is_read else REFUSED


async def read_by_schema(session: Session, prompt: str, kind: Any) -> Any:
    """Read it as `--json-schema` does, and convert the plain value for the comparison."""
    fields = {"value": msgspec.json.schema(kind)}
    definitions = fields["value"].pop("$defs", {})
    schema = {"type": "object", "properties": fields, "required": ["value"], "$defs": definitions}
    report = await session.task(prompt, outputs=schema)
    return msgspec.convert(report.outputs["value"], kind, str_keys=True) if report.ok else REFUSED


async def read_by_function(session: Session, prompt: str, kind: Any) -> Any:
    taken: list[Any] = []

    async def take(value: Any) -> str:
        taken.append(value)
        return "taken"

    take.__annotations__["value"] = kind
    await call_tool(session, prompt, tool(take))
    return taken[0] if taken else REFUSED


async def read_by_declaration(session: Session, prompt: str, kind: Any) -> Any:
    taken: list[Any] = []
    field = msgspec.json.schema(kind)
    definitions = field.pop("$defs", {})
    parameters = {"type": "object", "properties": {"value": field}, "$defs": definitions}
    own = declare_tool("take", "Takes.", parameters, lambda given: taken.append(given["value"]))
    await call_tool(session, prompt, own)
    return msgspec.convert(taken[0], kind, str_keys=True) if taken else REFUSED


async def call_tool(session: Session, prompt: str, own: Tool) -> None:
    config = ToolConfig(tools=[own])
    await session.scope("a", PromptConfig(system_prompt=prompt), tool_config=config)


DOORS: list[Read] = [
    read_by_task,
    read_by_scope,
    read_by_schema,
    read_by_function,
    read_by_declaration,
]


class Model:
    """A model that gives the value whose number is in the prompt, once, and then gives up."""

    def __init__(self) -> None:
        self.given: set[str] = set()

    def answer(self, request: Request) -> Answer:
        number = re.findall(r"Count (\d+)\.", request.prompt + request.system)[0]
        if number in self.given:
            return "I cannot."
        self.given.add(number)
        value = SPELLINGS[int(number)][1]
        return [call("take", value=value) if "take" in request.tools else emit("value", value)]


@pytest.mark.parametrize("read", DOORS, ids=lambda read: read.__name__)
async def test_every_spelling_is_read_alike(scripted: Open, read: Read) -> None:
    wrong: list[tuple[Any, Any, Any]] = []
    async with scripted(Model().answer) as (session, _):
        for number, (kind, value, expected) in enumerate(SPELLINGS):
            if read is read_by_function and value in LAX:
                continue
            found = await read(session, f"Count {number}.", kind)
            if found is not expected and (found != expected or type(found) is not type(expected)):
                wrong.append((kind, value, found))
    assert not wrong


@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        ({"a": list[int], "b": list[str]}, {"a": '["1"]', "b": '["1"]'}),
        ({"a": bool, "b": int}, {"a": "1", "b": "1"}),
        ({"a": int, "b": "a text"}, {"a": "7", "b": "7"}),
        ({"a": Book, "b": dict[str, str]}, {"a": '{"title": "1"}', "b": '{"title": "1"}'}),
    ],
    ids=str,
)
async def test_a_value_is_read_as_its_own_output_means_it(
    scripted: Open, kinds: dict[str, Any], values: dict[str, str]
) -> None:
    """The schema on the wire allows the types of all outputs; that must not mix them up."""
    expected = {
        name: value
        if isinstance(kinds[name], str)
        else msgspec.json.decode(value, type=kinds[name], strict=False)
        for name, value in values.items()
    }
    answer = [emit(name, value) for name, value in values.items()]
    async with scripted([answer]) as (session, _):
        report = await session.task("Count.", outputs=kinds)
    assert report.outputs == expected
    assert [type(each) for each in report.outputs.values()] == [*map(type, expected.values())]


HOSTILE = ["[" * 300_000, '{"a":' * 100_000, "1" * 300_000, "```" * 100_001, "\\u0000" * 50_000]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:6])
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    node = {"$ref": "#/$defs/n"}
    schema = {
        "anyOf": [node, {"type": "array", "items": node}, {"allOf": [{"$ref": "#"}] * 3}],
        "$defs": {"n": {"oneOf": [{"type": "array", "items": node}, {"type": "integer"}]}},
    }
    start = time.process_time()
    assert read_leniently(schema, text) == text
    assert read_leniently({"type": "array"}, text) == text
    assert find_json(text) is NOT_JSON
    assert time.process_time() - start < 5


def test_a_schema_that_refers_to_itself_or_elsewhere_changes_nothing() -> None:
    for reference in ("#", "#/nowhere", "https://example.test/schema", "#/$defs/a"):
        schema = {"$ref": reference, "$defs": {"a": {"$ref": "#/$defs/a"}}}
        assert read_leniently(schema, "1") == "1"


def list_schemas(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """List a schema and all schemas in it."""
    found = [schema]
    inner = [*schema.get("properties", {}).values(), schema.get("items")]
    inner += [schema.get("additionalProperties"), *schema.get("prefixItems", [])]
    for key in ("anyOf", "oneOf", "allOf"):
        inner += schema.get(key, [])
    for each in inner:
        if isinstance(each, dict):
            found += list_schemas(cast("dict[str, Any]", each))
    return found


class Node(msgspec.Struct):
    name: str
    children: list[Node] = []


WANTED: list[Any] = [
    Book,
    list[Book],
    Node,
    Any,
    list[Any],
    dict[str, Any],
    {"a": "a text"},
    {"a": "a text", "b": int, "c": list[Book], "d": Any, "e": Book | None, "f": Node},
    {"type": "array", "items": {}},
    {"type": "object", "properties": {"a": {"description": "anything"}, "b": True}},
    {"enum": ["red", 1]},
]


def make_emit_tool(wanted: Any) -> Tool:
    return OutputCollector(parse_output_type(wanted).outputs).make_tool()


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_the_wire_has_the_type_of_every_value(wanted: Any) -> None:
    """Grammars of llama.cpp read a schema without a type as an object; some take no references."""
    parameters = make_emit_tool(wanted).parameters
    assert parameters["type"] == "object"
    assert not parameters.keys() & {"anyOf", "oneOf", "allOf"}
    value = parameters["properties"]["emit_variable_value"]
    for schema in list_schemas(value):
        assert schema.keys() & {"type", "anyOf", "oneOf", "enum"}, schema
    assert "$ref" not in json.dumps(value)
    assert json.dumps(parameters) == json.dumps(make_emit_tool(wanted).parameters)


def test_the_wire_names_the_outputs_of_each_type() -> None:
    parameters = make_emit_tool({"a": int, "b": "a text", "c": int}).parameters
    assert parameters["properties"]["emit_variable_value"] == {
        "anyOf": [
            {"type": "integer", "description": "a, c"},
            {"type": "string", "description": "b"},
        ]
    }
