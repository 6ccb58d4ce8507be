"""Messages of a worker process about models that the session's process calls for it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...._core.messages import Message


class ToolSpec(Struct, frozen=True):
    """The part of a tool that a model reads."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelStart(Struct, frozen=True, tag=True):
    """Start a conversation with a bridged model."""

    conversation: int
    model: str
    system: str
    tools: list[ToolSpec]
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    server_tools: tuple[str, ...] = ()
    effort: str | None = None
    cache_key: str = ""


class ModelAppend(Struct, frozen=True, tag=True):
    """Append a message to a conversation with a bridged model."""

    conversation: int
    message: Message


class ModelRequest(Struct, frozen=True, tag=True):
    """Request the next answer of a bridged model."""

    id: int
    conversation: int
    tools: bool
    max_tokens: int | None = None


class ModelForget(Struct, frozen=True, tag=True):
    """Forget the conversation of a run that ended."""

    conversation: int
