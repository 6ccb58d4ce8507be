"""Tools that hold the interpreter of their process: its event loop does not run any more."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from mudroom import Effect, ToolContext, tool

_ENDLESS = "a" * 45 + "b"
"""Matching it against (a+)+$ takes years, and the matcher does not release the interpreter."""


@tool(effect=Effect.PURE)
def hold_once(context: ToolContext) -> str:
    """Hold the interpreter at the first call in a folder; return at the second one."""
    mark = Path(context.workspace.root, "held")
    if mark.exists():
        return "matched"
    mark.touch()
    return str(re.match(r"(a+)+$", _ENDLESS))


@tool(effect=Effect.PURE)
def hold(context: ToolContext) -> str:
    """Hold the interpreter at every call, and sleep meanwhile: that costs the machine nothing."""
    Path(context.workspace.root, "held").touch()
    return str(ctypes.PyDLL(None).sleep(600))  # PyDLL does not release the interpreter
