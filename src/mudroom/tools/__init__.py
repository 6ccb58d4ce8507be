"""The tools that come with the house: one file each, its text for the model in a .md beside it."""

from __future__ import annotations

from .._core.tools import Tool


def builtin_tools() -> dict[str, Tool]:
    """The built-in tools by name, in the order they are offered: bash, read, write, edit, glob, grep, todo."""
    from .bash import BASH
    from .edit import EDIT
    from .glob import GLOB
    from .grep import GREP
    from .read import READ
    from .todo import TODO
    from .write import WRITE

    return {tool.name: tool for tool in (BASH, READ, WRITE, EDIT, GLOB, GREP, TODO)}
