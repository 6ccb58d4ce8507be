"""Arguments of the task tool."""

from __future__ import annotations

from msgspec import Struct


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the task tool."""

    prompt: str = ""
    description: str = ""
    agent: str = "general"
    max_turns: int | None = None
    model: str | None = None
    find: str = ""
    background: bool = False
