"""The merge tool: decides what becomes of the work of a child that is not merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from .merge_arguments import MergeArguments

if TYPE_CHECKING:
    from ..call_context import CallContext

_DESCRIPTION = (
    "Decide on unmerged work. return: to the child; clean: all but conflicts; side: one version"
)


def _parse(arguments: dict[str, Any]) -> MergeArguments:
    parsed = msgspec.convert(arguments, MergeArguments, strict=False)
    if parsed.how == "side" and not parsed.side:
        raise ValueError("side: say whose version to take: parent or child")
    if parsed.how != "side" and (parsed.side or parsed.paths):
        raise ValueError(f"how: {parsed.how!r} takes no side and no paths; use side")
    return parsed


async def _run(context: CallContext, arguments: MergeArguments) -> ToolResult:
    from .merge_work import merge_work  # most first requests go out before a child has work

    return await merge_work(context, arguments)


MERGE_TOOL = Tool(
    name="merge",
    description=_DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {
            "run": {"type": "string"},
            "how": {"type": "string", "enum": ["return", "retry", "clean", "side", "drop"]},
            "side": {"type": "string", "enum": ["parent", "child"]},
            "paths": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["run"],
    },
    parse=_parse,
    run=_run,
    effect=Effect.KEYED,
    category=ToolCategory.AGENT,
    title_argument="run",
    needs_children=True,
    argument_aliases={"name": "run", "task_id": "run", "to": "run", "child": "run"},
)
"""The tool; only sessions whose agents or options isolate children offer it."""
