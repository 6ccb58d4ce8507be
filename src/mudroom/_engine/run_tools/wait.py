"""The wait tool: waits for background work and messages, without a request to the model."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ...errors import suggest_names
from ..call_context import CallContext

MAX_SECONDS = 600.0
"""Longest wait of one call."""

_DESCRIPTION = (
    "Wait until background work ends (task or bash with background: true) or a message comes. "
    "The task-notification follows the result. Waiting costs no request: never poll or sleep."
)


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the wait tool. `block`: false only lists the work, as a timeout of 0 does."""

    ids: tuple[str, ...] = field(name="for", default=())
    until: Literal["any", "all"] = "any"
    timeout: float = MAX_SECONDS
    block: bool = True

    @property
    def seconds(self) -> float:
        """Seconds to wait. A number above the maximum is in milliseconds, as in other programs."""
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
    background = context.run.background
    known = background.titles
    for work_id in arguments.ids:
        if work_id not in known:
            hint = suggest_names(work_id, known)
            return ToolResult(f"There is no background work {work_id!r}. {hint}", error=True)
    if not background.open and not context.run.inbox.has_unread:
        return ToolResult("Nothing works in the background, and no message has come.", error=True)
    if arguments.seconds:
        try:
            async with asyncio.timeout(arguments.seconds):
                await background.wait_for(arguments.ids, wants_all=arguments.until == "all")
        except TimeoutError:
            pass
    lines = [
        f"{work_id} {title}: {'has ended' if background.is_reported(work_id) else 'works'}"
        for work_id, title in known.items()
        if not arguments.ids or work_id in arguments.ids
    ]
    return ToolResult("\n".join(lines) or "A message has come.")


WAIT = Tool(
    name="wait",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {
            "for": {
                "type": "array",
                "items": {"type": "string"},
                "description": "task ids; default: all",
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
        "timeout_ms": "timeout",
    },
)
