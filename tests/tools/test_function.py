"""Tools made from functions and from declarations."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from tests.tools.conftest import Run

from mudroom._adapters.tools.function import declare_tool, tool
from mudroom._core.ports import ToolContext
from mudroom._core.tools import Effect, Tool, ToolResult
from mudroom.errors import UsageError


@dataclass
class Point:
    """A place."""

    x: int
    y: int = 0


class Option(TypedDict):
    name: str


@tool
def weather(city: str, days: int = 1) -> str:
    """The weather
    in a city.

    Not for the model.
    """
    return f"{city} {days}"


@tool(name="draw", description="Draw.", effect=Effect.PURE, needs_confirmation=True)
async def drawn(
    at: Point,
    kind: Literal["dot", "line"],
    sizes: list[float],
    options: list[Option] | None = None,
    width: Annotated[int, "in pixels"] = 1,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {"at": [at.x, at.y], "kind": kind, "sizes": sizes, "options": options, "width": width}


async def use(made: Tool, ctx: Any, **arguments: Any) -> ToolResult:
    return await made.run(ctx, made.parse(arguments))


def test_a_decorated_function_is_a_tool() -> None:
    assert isinstance(weather, Tool)
    assert (weather.name, weather.description, weather.effect) == (
        "weather",
        "The weather in a city.",
        Effect.EFFECTFUL,
    )
    assert weather.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    }
    assert (drawn.name, drawn.description, drawn.effect, drawn.needs_confirmation) == (
        "draw",
        "Draw.",
        Effect.PURE,
        True,
    )


def test_types_become_a_schema_without_references() -> None:
    properties = drawn.parameters["properties"]
    assert properties["at"] == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        "required": ["x"],
    }
    assert properties["kind"] == {"type": "string", "enum": ["dot", "line"]}
    assert properties["options"]["items"] == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    assert properties["width"] == {"type": "integer", "description": "in pixels"}
    assert drawn.parameters["required"] == ["at", "kind", "sizes"]


async def test_arguments_are_converted_and_results_are_json(ctx: Run) -> None:
    assert (await use(weather, ctx, city="Köln", days="3")).text == "Köln 3"
    result = await use(drawn, ctx, at={"x": 1}, kind="dot", sizes=[1, 2.5], options=[{"name": "n"}])
    assert (
        result.text
        == '{"at":[1,0],"kind":"dot","sizes":[1.0,2.5],"options":[{"name":"n"}],"width":1}'
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "city: required; expected string"),
        ({"city": 1}, "city: is integer; expected string"),
        ({"city": "a", "when": 1}, "when: unknown; the arguments are city, days"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        weather.parse(arguments)
    assert str(caught.value) == expected


async def test_the_context_is_passed_but_not_in_the_schema(ctx: Run) -> None:
    @tool
    def where(ctx: ToolContext, name: str) -> str:
        return f"{ctx.workspace.root}/{name}"

    assert list(where.parameters["properties"]) == ["name"]
    assert (await use(where, ctx, name="x")).text == f"{ctx.root}/x"


async def test_a_plain_function_runs_in_a_thread(ctx: Run) -> None:
    @tool
    def thread() -> str:
        return str(threading.current_thread() is threading.main_thread())

    assert thread.parameters == {"type": "object", "properties": {}}
    assert (await use(thread, ctx)).text == "False"


async def test_a_tool_result_is_returned_unchanged_and_none_has_a_text(ctx: Run) -> None:
    arguments = ToolResult("x", error=True)

    @tool
    async def same() -> ToolResult:
        return arguments

    @tool
    async def nothing() -> None: ...

    assert await use(same, ctx) is arguments
    assert (await use(nothing, ctx)).text == "(no result)"


async def test_a_mutable_default_belongs_to_one_call(ctx: Run) -> None:
    @tool
    async def grow(items: list[int] = []) -> list[int]:  # noqa: B006  it is what is tested
        items.append(1)
        return items

    assert [(await use(grow, ctx)).text for _ in range(2)] == ["[1]", "[1]"]


def test_a_function_without_a_schema_is_refused() -> None:
    def stars(*args: int) -> str:
        return ""

    def odd(thing: threading.Thread) -> str:
        return ""

    with pytest.raises(UsageError, match="which a model cannot send"):
        tool(stars)
    with pytest.raises(UsageError, match="a type that JSON cannot hold"):
        tool(odd)


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}},
    "required": ["n"],
}


async def test_a_declared_tool_checks_arguments_and_calls_its_handler(ctx: Run) -> None:
    async def double(arguments: dict[str, Any]) -> int:
        return arguments["n"] * 2

    made = declare_tool("double", "Double it.", SCHEMA, double)
    assert made.parameters is SCHEMA
    assert (await use(made, ctx, n=4)).text == "8"
    for arguments, expected in (
        ({"n": 0}, "n: 0 is less than the minimum of 1"),
        ({}, 'arguments: "n" is a required property'),
    ):
        with pytest.raises(ValueError) as caught:
            made.parse(arguments)
        assert str(caught.value) == expected


def test_a_declaration_with_an_invalid_schema_is_refused() -> None:
    with pytest.raises(UsageError, match="the parameters of tool 'bad' are not a JSON Schema"):
        declare_tool("bad", "", {"type": "nonsense"})
