"""Arguments of the task tool."""

from __future__ import annotations

from msgspec import Struct

ISOLATIONS = ("shared", "isolated")
"""Whose files a child works in: those of its parent, or files of its own."""


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the task tool. `role` is put before the prompt."""

    prompt: str = ""
    description: str = ""
    agent: str = "general"
    max_turns: int | None = None
    model: str | None = None
    find: str = ""
    background: bool = False
    isolation: str = ""
    name: str = ""
    plan: bool = False
    role: str = ""
