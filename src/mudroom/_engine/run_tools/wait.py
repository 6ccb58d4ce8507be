"""The wait tool: waits for background work and messages, without a request to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field

from ..._core.runs import is_run_above
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._platform.time_limits import time_limit
from ..._projections.team import normalize_name
from ...errors import suggest_names
from ..team_registry import PARENT_NAMES

if TYPE_CHECKING:
    from ..call_context import CallContext
    from ..children.members import TeamMembers

MAX_SECONDS = 600.0  # per call

_DESCRIPTION = (
    "Wait for background work (task or bash with background: true) or a message. "
    "The task-notification follows the result. Waiting costs no request: never poll or sleep."
)


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the wait tool. `block`: false only lists the work, like a timeout of 0."""

    ids: tuple[str, ...] = field(name="for", default=())
    until: Literal["any", "all"] = "any"
    timeout: float = MAX_SECONDS
    block: bool = True

    @property
    def seconds(self) -> float:
        """Seconds to wait. Numbers above the maximum are milliseconds, as in other programs."""
        seconds = self.timeout / 1000 if self.timeout > MAX_SECONDS else self.timeout
        return min(seconds, MAX_SECONDS) if self.block else 0.0


def _parse(arguments: dict[str, Any]) -> Arguments:
    ids = arguments.get("for")
    if isinstance(ids, str):
        arguments = {**arguments, "for": [ids]}
    parsed = msgspec.convert(
        {name: value for name, value in arguments.items() if value is not None},
        Arguments,
        strict=False,
    )
    if parsed.timeout < 0:
        raise ValueError(f"timeout: 0 to {MAX_SECONDS:g} seconds")
    return parsed


async def _run(context: CallContext, arguments: Arguments) -> ToolResult:
    from ..children.start_child import open_team

    background = context.run.background
    members = open_team(context.run).members
    known = background.titles
    ids: list[str] = []
    for requested in arguments.ids:
        if refusal := _find_cycle(context.run_id, requested):
            return ToolResult(refusal, error=True)
        teammate = members.find(requested)
        work_id = teammate.run_id if teammate else requested
        if active := members.active.get(normalize_name(requested)):
            work_id = active.work_id
        if work_id not in known and teammate is None:
            hint = suggest_names(requested, [*known, *members.list_names()])
            return ToolResult(f"There is no background work {requested!r}. {hint}", error=True)
        ids.append(work_id)
    rows = _list_teammates(members, ids)
    if not background.open and not context.run.inbox.has_unread and not rows:
        return ToolResult("Nothing works in the background, and no message has come.", error=True)
    open_ids = [work_id for work_id in ids if work_id in background.open]
    has_ended = len(open_ids) < len(ids)
    is_over = has_ended and (arguments.until == "any" or not open_ids)
    if arguments.seconds and background.open and not is_over:
        try:
            async with time_limit(arguments.seconds):
                with context.run.meter.lend_share():
                    await background.wait_for(open_ids, wants_all=arguments.until == "all")
        except TimeoutError:
            pass
    lines = [
        f"{work_id} {title}: {'has ended' if background.is_reported(work_id) else 'works'}"
        for work_id, title in known.items()
        if not ids or work_id in ids
    ]
    return ToolResult("\n".join((*lines, *_list_teammates(members, ids))) or "A message has come.")


def _find_cycle(run_id: str, requested: str) -> str:
    """Return why a run cannot wait for another one that waits for it, or ""."""
    is_above = run_id == requested or is_run_above(requested, run_id)
    if normalize_name(requested) in PARENT_NAMES or is_above:
        return (
            f"You cannot wait for {requested}: it waits for you ({requested} -> {run_id} -> "
            f"{requested}). End with your question as your report."
        )
    return ""


def _list_teammates(members: TeamMembers, ids: list[str]) -> list[str]:
    """List a line for each named child that is not working."""
    return [
        f"{teammate.name} ({teammate.agent}, {teammate.run_id}): {teammate.state}"
        for teammate in members.list_current()
        if teammate.name not in members.active
        and not teammate.is_replaced
        and (not ids or teammate.run_id in ids)
    ]


WAIT = Tool(
    name="wait",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {
            "for": {
                "type": "array",
                "items": {"type": "string"},
                "description": "names or task ids; default: all",
            },
            "until": {"type": "string", "enum": ["any", "all"]},
            "timeout": {"type": "number", "description": "seconds, at most 600; 0 only lists"},
        },
    },
    parse=_parse,
    run=_run,
    effect=Effect.PURE,
    category=ToolCategory.AGENT,
    needs_children=True,
    argument_aliases={
        "ids": "for",
        "task_id": "for",
        "target": "for",
        "targets": "for",
        "bash_id": "for",
        "teammate": "for",
        "timeout_ms": "timeout",
    },
    ignored_arguments=frozenset(("filter",)),  # of the output, which the notification brings
)
