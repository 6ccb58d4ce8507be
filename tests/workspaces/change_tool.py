"""A tool with which a scripted run changes files in any way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mudroom import Tool, ToolContext, ToolResult
from mudroom._core.tools import ToolCategory


def make_change_tool(act: Callable[[ToolContext], None]) -> Tool:
    async def run(context: ToolContext, _: dict[str, Any]) -> ToolResult:
        act(context)
        return ToolResult("changed")

    return Tool(
        name="change",
        description="",
        parameters={"type": "object"},
        parse=dict,
        run=run,
        category=ToolCategory.WRITE,
    )
