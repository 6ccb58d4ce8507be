"""todo: the plan of a long task, kept by the model, and a word to it when it forgets."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

from .._core.ports import ToolContext
from .._core.tools import Effect, Tool, ToolResult
from ._schema import build_parser, build_schema, load_description

MAX_ITEMS = 20
"""Items of a list."""
TURNS_BEFORE_REMINDER = 3
"""Turns without the tool, after which the model is reminded."""

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_LET_GO = {"id", "priority", "activeForm"}
_REMINDER = "<reminder>Update your todo list.</reminder>"


class TodoItem(Struct, frozen=True):
    """One step of the plan."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


class Arguments(Struct, frozen=True):
    """The whole list, anew each time."""

    todos: list[TodoItem]


_parse = build_parser(Arguments)


def parse(given: dict[str, Any]) -> Arguments:
    """Check the list: not too long, no empty content, one item in progress at most."""
    todos = given.get("todos")
    if isinstance(todos, list):
        given = {**given, "todos": [_respelled(item) for item in cast(list[Any], todos)]}
    arguments = _parse(given)
    if len(arguments.todos) > MAX_ITEMS:
        raise ValueError(f"todos: {len(arguments.todos)} items; {MAX_ITEMS} at most, join some")
    for number, item in enumerate(arguments.todos):
        if not item.content.strip():
            raise ValueError(f"todos[{number}].content: is empty; say what is to be done")
    if sum(item.status == "in_progress" for item in arguments.todos) > 1:
        raise ValueError("todos: more than one is in_progress; work on one at a time")
    return arguments


def _respelled(item: Any) -> Any:
    """{id, text, status} is another way to write an item; words for screens and priorities are let go."""
    if not isinstance(item, dict):
        return item
    fields = cast(dict[str, Any], item)
    return {
        "content" if key == "text" else key: value
        for key, value in fields.items()
        if key not in _LET_GO
    }


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Keep the list and show it."""
    done = sum(item.status == "completed" for item in arguments.todos)
    ctx.memo["todo"] = {"open": len(arguments.todos) - done, "turn": ctx.turn}
    if not arguments.todos:
        return ToolResult("(no todos)")
    rows = [f"{_MARKS[item.status]} {item.content.strip()}" for item in arguments.todos]
    current = next((item.content for item in arguments.todos if item.status == "in_progress"), "")
    total = len(arguments.todos)
    return ToolResult(
        "\n".join([*rows, f"({done}/{total} completed)"]),
        display=f"{done}/{total} {current}".strip(),
    )


def remind(ctx: ToolContext) -> str | None:
    """A word when items are open and the list has not been touched for a while."""
    kept = ctx.memo.get("todo")
    if not kept or not kept["open"] or ctx.turn - kept["turn"] < TURNS_BEFORE_REMINDER:
        return None
    kept["turn"] = ctx.turn
    return _REMINDER


TODO = Tool(
    name="todo",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    effect=Effect.PURE,
    argument_aliases={"items": "todos"},
    remind=remind,
)
