"""The task_stop tool: stops background work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._projections.team import normalize_name
from ...errors import suggest_names

if TYPE_CHECKING:
    from ..call_context import CallContext
    from ..children.team import Team


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the task_stop tool. A named child reads the `reason` with `how="ask"`."""

    to: str
    how: Literal["wrap_up", "now", "ask"] = "wrap_up"
    reason: str = ""


def _parse(arguments: dict[str, Any]) -> Arguments:
    return msgspec.convert(arguments, Arguments, strict=False)


async def _run(context: CallContext, arguments: Arguments) -> ToolResult:
    from ..children.start_child import open_team

    team = open_team(context.run)
    name = normalize_name(arguments.to)
    teammate = team.members.find(name)
    if teammate:
        name = teammate.name
    if name in team.members.active:
        return await _stop_named(context, team, name, arguments)
    background = context.run.background
    work_id = arguments.to
    if teammate and work_id not in background.open:
        if team.members.is_stopped(teammate):
            return ToolResult(f"{name} is stopped already.")
        text = f"{name} is idle, and is not started again: its name is free."
        return ToolResult(text, detail={"stopped": teammate.first_run})
    if background.is_reported(work_id):
        return ToolResult(f"{work_id} has ended already.")
    if work_id not in background.titles:
        hint = suggest_names(work_id, [*background.titles, *team.members.list_names()])
        return ToolResult(f"There is no background work {work_id!r}. {hint}", error=True)
    # A child without a name cannot answer, so do not ask it.
    background.stop_one(work_id, is_gentle=arguments.how != "now")
    return ToolResult(f"{work_id} is stopping; its task-notification comes when it has ended.")


async def _stop_named(
    context: CallContext, team: Team, name: str, arguments: Arguments
) -> ToolResult:
    active = team.members.active[name]
    if arguments.how == "ask":
        text = await team.shutdowns.ask(name, context.place, arguments.reason)
        return ToolResult(text)
    active.is_stopping = True
    context.run.background.stop_one(active.work_id, is_gentle=arguments.how == "wrap_up")
    text = f"{name} is stopping, and is not started again; its task-notification comes at its end."
    return ToolResult(text, detail={"stopped": active.first_run})


TASK_STOP = Tool(
    name="task_stop",
    description="Stop background work.",
    parameters={
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "name or task id"},
            "how": {
                "type": "string",
                "enum": ["wrap_up", "now", "ask"],
                "description": "wrap_up (default): it reports what it has; ask: it may refuse once",
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
