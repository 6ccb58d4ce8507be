"""The built-in tools: one module per tool, with its text for the model in a .md file beside it.

To add a tool, write its module, with the Tool as a constant in capitals (`READ` in read.py), and
its text, and add the name to BUILTIN_TOOLS. Permissions and screens read all facts about a tool
from this constant.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..._core.tool_names import normalize_tool_name
from ..._core.tools import Tool

# In the order models see them.
BUILTIN_TOOLS = ("bash", "read", "write", "edit", "glob", "grep", "todo")

# Sessions have these only on request; see board.py.
BOARD_TOOLS = ("task_create", "task_update", "task_list", "task_get")


def make_builtin_tools() -> dict[str, Tool]:
    return {name: _load(name) for name in BUILTIN_TOOLS}


def find_builtin_tool(name: str) -> Tool | None:
    """Look up a built-in tool by its name, or by another program's name for it."""
    name = normalize_tool_name(name)
    return _load(name) if name in BUILTIN_TOOLS else None


@cache
def _load(name: str) -> Tool:
    return getattr(import_module(f".{name}", __name__), name.upper())
