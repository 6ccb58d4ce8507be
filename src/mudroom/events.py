"""Record of a session: every event class, and the tasks that `Session.reports` finds in it.

Example:
    def describe(event: AnyEvent) -> str:
        match event:
            case SessionOpened() | SessionClosed() | ConversationRewound():
                return "session"
            case RunStarted() | RunResumed() | RunWaiting():
                return f"run {event.run}"
            case TurnStarted() | TurnFinished() | TurnFailed() | ModelCallRetried():
                return f"turn {event.turn} of run {event.run}"
            case ToolCallStarted() | ToolCallFinished() | PermissionDecided() | FileWriteIntended():
                return "tool call"
            case NoteInjected() | MessageSent() | MessageDelivered() | TeamMessageSent():
                return "text for the next request"
            case WorkMerged():
                return f"files of run {event.child}"
            case InputAnswered():
                return f"{event.server} asked: {event.message}"
            case CheckStarted() | CheckFinished():
                return event.command
            case ResultsCleared() | Compacted():
                return "the conversation is shorter"
            case Delta():
                return event.text
            case RunFinished():
                return event.report.text
            case _:
                return type(event).__name__

    history: list[StoredEvent] = []
    latest: Event | None = None
    session.watch(lambda event: print(describe(event)))

    body = encode_event(RunWaiting(run="1.3.2", at=0.0))  # as journals store it
    decode_event(body).run == "1.3.2"
"""

from __future__ import annotations

from ._core import events as _events
from ._core.events import *  # noqa: F403  all of its public names
from ._core.runs import RecordedTask

__all__ = ["RecordedTask"]
__all__ += _events.__all__
