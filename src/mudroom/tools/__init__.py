"""The built-in tools: one module per tool, with the text for the model in a .md file beside it."""

from __future__ import annotations

from .._core.tools import Tool


def builtin_tools() -> dict[str, Tool]:
    """Return the built-in tools by name, in the order in which models see them."""
    from .bash import BASH
    from .edit import EDIT
    from .glob import GLOB
    from .grep import GREP
    from .read import READ
    from .todo import TODO
    from .write import WRITE

    return {tool.name: tool for tool in (BASH, READ, WRITE, EDIT, GLOB, GREP, TODO)}
