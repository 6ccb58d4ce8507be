"""The tools for the project's task board: task_create, task_update, task_list, task_get."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct

from ..._core.json_values import JsonValue
from ..._core.ports import Board, ToolContext
from ..._core.ports.board import CLAIM_DETAIL, BoardAnswer, Status, TaskChange
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._projections.board_lines import count_tasks, format_details, format_ready, format_task
from ._schema import build_parser, build_schema

T = TypeVar("T")

MAX_LISTED = 200  # most tasks in a list

_ID = re.compile(r"(?:#|task[_ #-]*)?(\d+)", re.IGNORECASE)
_ID_ARGUMENTS = ("task_id", "blocked_by", "add_blocked_by", "add_blocks")
_IGNORED_ARGUMENTS = {"activeForm"}
_STATUS_ALIASES = {"open": "pending", "closed": "completed", "done": "completed"}
_ALIASES = {
    "title": "subject",
    "taskId": "task_id",
    "id": "task_id",
    "blockedBy": "blocked_by",
    "dependencies": "blocked_by",
    "addBlockedBy": "add_blocked_by",
    "dependencyId": "add_blocked_by",
    "addBlocks": "add_blocks",
}


class CreateArguments(Struct, frozen=True):
    subject: str
    description: str = ""
    blocked_by: list[int] = []
    metadata: dict[str, Any] = {}


class UpdateArguments(Struct, frozen=True):
    task_id: int
    status: Literal["pending", "in_progress", "completed", "deleted"] | None = None
    subject: str | None = None
    description: str | None = None
    owner: str | None = None
    add_blocked_by: list[int] = []
    add_blocks: list[int] = []
    metadata: dict[str, Any] = {}


class ListArguments(Struct, frozen=True):
    status: Status | None = None


class GetArguments(Struct, frozen=True):
    task_id: int


def _parse_leniently(parse: Callable[[dict[str, Any]], T], arguments: Mapping[str, Any]) -> T:
    """Convert a call's arguments; ids may be texts such as "#3" or "task_3"."""
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in _IGNORED_ARGUMENTS:
            continue
        if name == "status" and isinstance(value, str):
            value = _STATUS_ALIASES.get(value, value)
        elif name in _ID_ARGUMENTS:
            value = _convert_id(value)
            if name != "task_id" and isinstance(value, int):
                value = [value]
        values[name] = value
    return parse(values)


def _convert_id(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_convert_id(item) for item in value]
    if isinstance(value, str) and (match := _ID.fullmatch(value.strip())):
        return int(match[1])
    return value


async def _create(board: Board, ctx: ToolContext, arguments: CreateArguments) -> ToolResult:
    answer = await board.create_task(
        ctx.call_key,
        arguments.subject,
        arguments.description,
        arguments.blocked_by,
        arguments.metadata,
    )
    return ToolResult(f"added {format_task(answer.task)}")


async def _update(board: Board, ctx: ToolContext, arguments: UpdateArguments) -> ToolResult:
    owner = arguments.owner
    if owner is None and arguments.status == "in_progress":
        owner = ctx.run_name
    change = TaskChange(
        status=arguments.status,
        subject=arguments.subject,
        description=arguments.description,
        owner=owner,
        agent=ctx.agent_name,
        blockers=tuple(arguments.add_blocked_by),
        blocks=tuple(arguments.add_blocks),
        metadata=arguments.metadata,
    )
    answer = await board.update_task(ctx.call_key, ctx.run_id, arguments.task_id, change)
    text = _describe(answer, arguments.status)
    if arguments.status is None:
        return ToolResult(text)
    task = answer.task
    claim = {"id": task.id, "subject": task.subject, "is_claimed": task.status == "in_progress"}
    return ToolResult(text, detail={CLAIM_DETAIL: claim})


def _describe(answer: BoardAnswer, status: str | None) -> str:
    task = answer.task
    if answer.is_deleted:
        return f"#{task.id} is removed"
    if status == "completed":
        return f"#{task.id} is completed{format_ready(answer.ready)}"
    return format_details(task) if status == "in_progress" else format_task(task)


async def _list(board: Board, ctx: ToolContext, arguments: ListArguments) -> ToolResult:
    tasks = await board.list_tasks()
    if not tasks:
        return ToolResult("The task board of this project is empty.")
    listed = [task for task in tasks if arguments.status in (None, task.status)]
    if len(listed) > MAX_LISTED and arguments.status is None:
        listed = [task for task in tasks if task.status != "completed"]
    rows = [format_task(task) for task in listed[:MAX_LISTED]]
    if left_out := len(listed) - len(rows):
        rows.append(f"({left_out} more; task_get shows one)")
    count = count_tasks(tasks)
    return ToolResult("\n".join([*rows, count]), display=count)


async def _get(board: Board, ctx: ToolContext, arguments: GetArguments) -> ToolResult:
    return ToolResult(format_details(await board.get_task(arguments.task_id)))


_CREATE = (
    "Add a task to the task board of the project, which other sessions share. "
    "metadata.agent names the only agent that may claim it."
)
_UPDATE = (
    "Change a task of the board. in_progress claims it for you; set completed only when all of it "
    "is done, pending to give it back."
)
_LIST = "List the tasks of the board: [ ] pending, [>] in progress, [x] completed."
_GET = "Show a task of the board: description, dependencies, report."

_KINDS = (
    ("task_create", _CREATE, CreateArguments, _create, ToolCategory.BOARD),
    ("task_update", _UPDATE, UpdateArguments, _update, ToolCategory.BOARD),
    ("task_list", _LIST, ListArguments, _list, ToolCategory.READ),
    ("task_get", _GET, GetArguments, _get, ToolCategory.READ),
)


def make_board_tools(board: Board, offered_to: Literal["all", "request"]) -> tuple[Tool, ...]:
    return tuple(
        Tool(
            name=name,
            description=description,
            parameters=build_schema(arguments),
            parse=partial(_parse_leniently, build_parser(arguments)),
            run=partial(act, board),
            # One lane for all, so that a list has the changes of earlier calls in its answer.
            effect=Effect.KEYED,
            get_key=lambda _: "task board",
            category=category,
            argument_aliases=_ALIASES,
            title_argument="subject",
            offered_to=offered_to,
        )
        for name, description, arguments, act, category in _KINDS
    )
