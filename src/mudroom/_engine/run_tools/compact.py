"""The compact tool: shortens its run's conversation at the end of the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..context_policy import DEFAULT_THRESHOLDS
from ..conversation import REQUESTED_FOCUS

if TYPE_CHECKING:
    from ..call_context import CallContext

MIN_PERCENT = 30  # of the context window, in use before a model may compact

_ACCEPTED = (
    "Notes replace the older part of this conversation when this turn ends. The user's messages, "
    "facts about files and children, and the last turns stay."
)
_REFUSED = (
    "Not compacted: the conversation has {size:,} tokens, less than {percent} % of the context "
    "window ({window:,}). Go on; it is compacted automatically before the window is full."
)


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    focus: str = ""


def _parse(arguments: dict[str, Any]) -> Arguments:
    return msgspec.convert(arguments, Arguments, strict=False)


async def _run(context: CallContext, arguments: Arguments) -> ToolResult:
    run = context.run
    size = run.estimate_request_tokens()
    window = (run.find_thresholds(size) or DEFAULT_THRESHOLDS).window
    if size * 100 < window * MIN_PERCENT:
        text = _REFUSED.format(size=size, percent=MIN_PERCENT, window=window)
        return ToolResult(text, error=True)
    return ToolResult(_ACCEPTED, detail={REQUESTED_FOCUS: arguments.focus})


COMPACT = Tool(
    name="compact",
    description=(
        "Replace the older part of this conversation by notes when the turn ends. It also happens "
        "automatically."
    ),
    parameters={
        "type": "object",
        "properties": {"focus": {"type": "string", "description": "what the notes must keep"}},
    },
    parse=_parse,
    run=_run,
    effect=Effect.PURE,
    category=ToolCategory.READ,
    offered_to="root",
    title_argument="focus",
)
