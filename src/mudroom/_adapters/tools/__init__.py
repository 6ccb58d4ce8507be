"""The built-in tools: one module per tool, with the text for the model in a .md file beside it.

To add a tool, write its module with the Tool as a constant in capitals (`READ` in read.py), its
text, and add the name to BUILTIN_TOOLS. Permissions and screens read all facts about a tool from
this constant.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..._core.tool_names import normalize_tool_name
from ..._core.tools import Tool

BUILTIN_TOOLS = ("bash", "read", "write", "edit", "glob", "grep", "todo")
"""Names of the built-in tools, in the order in which models see them."""

BOARD_TOOLS = ("task_create", "task_update", "task_list", "task_get")
"""Names of the tools for the task board, which sessions have only on request; see board.py."""


def make_builtin_tools() -> dict[str, Tool]:
    """Return the built-in tools by name."""
    return {name: _load(name) for name in BUILTIN_TOOLS}


def find_builtin_tool(name: str) -> Tool | None:
    """Return the built-in tool of this name, None if there is none.

    The name may also be another program's name for the tool.
    """
    name = normalize_tool_name(name)
    return _load(name) if name in BUILTIN_TOOLS else None


@cache
def _load(name: str) -> Tool:
    return getattr(import_module(f".{name}", __name__), name.upper())
