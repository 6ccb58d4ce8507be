"""Long arguments of tool calls that write files, cut to head and tail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._core.messages import ToolCallBlock
from ..._core.tools import Tool, ToolCategory

MAX_LENGTH = 2_000
"""Characters from which a text in the arguments is cut."""
_KEPT_LENGTH = 500
"""Characters of head and tail that stay."""
_CUT = "[… {length:,} characters were cut to save space; the call had the whole text …]"


def cut_arguments(call: ToolCallBlock, tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Return the arguments of a call; long texts are cut if its tool writes files.

    A call with a signature of the provider stays as it is.
    """
    tool = tools.get(call.name)
    if tool is None or not tool.has_category(ToolCategory.WRITE) or call.signature:
        return call.arguments
    return {
        name: _cut(value) if isinstance(value, str) and len(value) > MAX_LENGTH else value
        for name, value in call.arguments.items()
    }


def _cut(text: str) -> str:
    notice = _CUT.format(length=len(text) - 2 * _KEPT_LENGTH)
    return f"{text[:_KEPT_LENGTH]}\n{notice}\n{text[-_KEPT_LENGTH:]}"
