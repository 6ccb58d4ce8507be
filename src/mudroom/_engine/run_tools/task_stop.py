"""The task_stop tool: stops background work."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ...errors import suggest_names
from ..call_context import CallContext


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the task_stop tool. `reason` is for screens."""

    to: str
    how: Literal["wrap_up", "now"] = "wrap_up"
    reason: str = ""


def _parse(arguments: dict[str, Any]) -> Arguments:
    return msgspec.convert(arguments, Arguments, strict=False)


async def _run(context: CallContext, arguments: Arguments) -> ToolResult:
    background = context.run.background
    work_id = arguments.to
    if background.is_reported(work_id):
        return ToolResult(f"{work_id} has ended already.")
    if work_id not in background.titles:
        hint = suggest_names(work_id, background.titles)
        return ToolResult(f"There is no background work {work_id!r}. {hint}", error=True)
    background.stop_one(work_id, is_gentle=arguments.how == "wrap_up")
    return ToolResult(f"{work_id} is stopping; its task-notification comes when it has ended.")


TASK_STOP = Tool(
    name="task_stop",
    description="Stop background work.",
    parameters={
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "task id"},
            "how": {
                "type": "string",
                "enum": ["wrap_up", "now"],
                "description": "wrap_up (default): it reports what it has",
            },
        },
        "required": ["to"],
    },
    parse=_parse,
    run=_run,
    effect=Effect.KEYED,
    category=ToolCategory.AGENT,
    needs_children=True,
    title_argument="to",
    argument_aliases={
        "task_id": "to",
        "target": "to",
        "teammate": "to",
        "agent_id": "to",
        "shell_id": "to",
        "id": "to",
    },
)
