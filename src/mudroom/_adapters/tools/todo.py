"""The todo tool: the model's plan for a long task, with a reminder when it is out of date."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

from ..._core.json_values import JsonValue
from ..._core.ports import ToolContext
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ._schema import build_parser, build_schema, load_description
from ._text_files import preview_result

MAX_ITEMS = 20
TURNS_BEFORE_REMINDER = 3  # turns without a call before the model gets a reminder

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_IGNORED_FIELDS = {"id", "priority", "activeForm"}
_OTHER_FIELDS: dict[str, str] = dict.fromkeys(
    ("text", "description", "step", "title", "task"), "content"
)
_OTHER_STATES: dict[str, str] = {
    "done": "completed",
    "blocked": "pending",
    "todo": "pending",
    "not_started": "pending",
    "in-progress": "in_progress",
}
_REMINDER = "<reminder>Update your todo list.</reminder>"


class TodoItem(Struct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class Arguments(Struct, frozen=True):
    todos: list[TodoItem]


_parse = build_parser(Arguments)


def parse(sent: dict[str, Any]) -> Arguments:
    arguments = _parse(sent)
    if len(arguments.todos) > MAX_ITEMS:
        raise ValueError(
            f"todos: has {len(arguments.todos)} items; combine some, {MAX_ITEMS} at most"
        )
    for number, item in enumerate(arguments.todos):
        if not item.content.strip():
            raise ValueError(f"todos[{number}].content: is empty; describe the step")
    if sum(item.status == "in_progress" for item in arguments.todos) > 1:
        raise ValueError("todos: more than one is in_progress; work on one at a time")
    return arguments


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Rename the items of other programs' tools; leave out cancelled ones."""
    todos = arguments.get("todos")
    if not isinstance(todos, list):
        return arguments
    items = [_rename(item) for item in cast("list[JsonValue]", todos)]
    cancelled = ("cancelled", "canceled")
    kept = [
        item for item in items if not isinstance(item, dict) or item.get("status") not in cancelled
    ]
    return {**arguments, "todos": kept}


def _rename(item: JsonValue) -> JsonValue:
    if not isinstance(item, dict):
        return item
    fields: dict[str, JsonValue] = {
        _OTHER_FIELDS.get(key, key): value
        for key, value in item.items()
        if key not in _IGNORED_FIELDS
    }
    if isinstance(status := fields.get("status"), str):
        fields["status"] = _OTHER_STATES.get(status, status)
    return fields


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    total = len(arguments.todos)
    done = sum(item.status == "completed" for item in arguments.todos)
    ctx.memo["todo"] = {"open": total - done, "turn": ctx.turn}
    if not arguments.todos:
        return ToolResult("(no todos)")
    rows = [f"{_MARKS[item.status]} {item.content.strip()}" for item in arguments.todos]
    active = [item.content for item in arguments.todos if item.status == "in_progress"]
    return ToolResult(
        "\n".join([*rows, f"({done}/{total} completed)"]),
        display=" ".join([f"{done}/{total}", *active]),
    )


def make_reminder(ctx: ToolContext) -> str | None:
    """Make a reminder if items are open and the list has not changed for some turns."""
    state = ctx.memo.get("todo")
    if not state or not state["open"] or ctx.turn - state["turn"] < TURNS_BEFORE_REMINDER:
        return None
    state["turn"] = ctx.turn
    return _REMINDER


TODO = Tool(
    name="todo",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    view="todos",
    effect=Effect.PURE,
    category=ToolCategory.READ,
    is_stateful=True,
    preview=preview_result,
    preview_lines=20,
    argument_aliases={"items": "todos", "plan": "todos", "todoList": "todos"},
    ignored_arguments=frozenset(("explanation",)),
    adapt=adapt,
    make_reminder=make_reminder,
)
