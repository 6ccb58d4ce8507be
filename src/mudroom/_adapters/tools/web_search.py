"""The web_search tool, run by the model's provider, so there is nothing to run here."""

from __future__ import annotations

from ..._core.tools import Tool, ToolCategory, ToolResult


async def _refuse(_: object, __: object) -> ToolResult:
    return ToolResult("the provider of the model runs this tool", error=True)


def make_web_search_tool() -> Tool:
    """Make the tool. The request names it; the provider knows its description."""
    return Tool(
        name="web_search",
        description="",
        parameters={"type": "object"},
        parse=dict,
        run=_refuse,
        category=ToolCategory.NETWORK,
        is_provider_tool=True,
    )
