"""Events of a session: every event class, for watchers and for readers of journals."""

from __future__ import annotations

from ._core.events import (
    AnyEvent,
    Delta,
    Event,
    FileWriteIntended,
    MessageDelivered,
    MessageSent,
    ModelCallRetried,
    NoteInjected,
    PermissionDecided,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionClosed,
    SessionOpened,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)

__all__ = [
    "AnyEvent",
    "Delta",
    "Event",
    "FileWriteIntended",
    "MessageDelivered",
    "MessageSent",
    "ModelCallRetried",
    "NoteInjected",
    "PermissionDecided",
    "RunFinished",
    "RunResumed",
    "RunStarted",
    "SessionClosed",
    "SessionOpened",
    "StoredEvent",
    "ToolCallFinished",
    "ToolCallStarted",
    "TurnFailed",
    "TurnFinished",
    "TurnStarted",
]
