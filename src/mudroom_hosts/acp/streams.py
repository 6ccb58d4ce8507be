"""RunStream: the messages and tool calls of one run, as its session in the protocol shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from mudroom import ToolCallBlock
from mudroom.events import Compacted, Delta, FileWriteIntended
from mudroom.views import sanitize

from .tool_calls import make_content, make_text

_CHUNKS = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}
"""Updates by the kind of the text."""
_OUTPUT_SECONDS = 0.2
"""Seconds between two updates with the output of a call."""


class OpenCall(Struct):
    """A tool call that has not finished.

    Arguments:
        id: unique in the session. block: the call as the model sent it, or as it runs.
        content: what the client shows of it.
        write: the write of a whole file that it makes, None for no write.
        is_detached: it has returned, and the child that it started works on.
        shown_at: when its output so far was sent last, seconds since 1970.
    """

    id: str
    block: ToolCallBlock
    view: str = ""
    content: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    write: FileWriteIntended | None = None
    is_detached: bool = False
    shown_at: float = 0.0


class RunStream:
    """What one run writes to its session.

    Arguments:
        session: id of the session in the protocol.

    Attributes:
        calls: the calls that have not finished, by their ids in the record.
    """

    def __init__(
        self, run_id: str, session: str, send: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self.session = session
        self.calls: dict[str, OpenCall] = {}
        self._run_id = run_id
        self._send = send
        self._streamed = {"text": "", "thinking": ""}
        self._attempt = 0
        self._last: dict[str, OpenCall] = {}

    def send(self, update: str, /, **fields: Any) -> None:
        """Send an update."""
        self._send(self.session, {"sessionUpdate": update, **fields})

    def add_delta(self, event: Delta) -> None:
        """Send streamed text, or the output of a call that works."""
        if event.kind == "output":
            self._show_output(event)
        if event.kind not in _CHUNKS or not event.text:
            return
        self._streamed[event.kind] += event.text
        self._send_chunk(event.kind, event.text, event.turn)

    def _show_output(self, event: Delta) -> None:
        call = self.calls.get(event.call_id)
        if call and event.text and event.at - call.shown_at >= _OUTPUT_SECONDS:
            call.shown_at = event.at
            output = make_content(make_text(event.text))
            self.send_call(call, content=[*call.content, output])

    def discard_streamed(self) -> None:
        """Begin a new message: the next text does not belong to the one before."""
        self._attempt += 1
        self._streamed = {"text": "", "thinking": ""}

    def complete_text(self, kind: str, text: str, turn: int) -> None:
        """Send what has not streamed of a text; all of it as a new message if it differs."""
        streamed = self._streamed[kind]
        if text.startswith(streamed):
            rest = text[len(streamed) :]
        elif "".join(text.split()) == "".join(streamed.split()):
            rest = ""
        else:
            self._attempt += 1
            rest = text
        if rest.strip():
            self._send_chunk(kind, rest, turn)

    def open_call(self, block: ToolCallBlock, turn: int) -> OpenCall:
        """Note a call of the model."""
        call = OpenCall(f"{self._run_id}/{turn}/{block.id}", block)
        self.calls[block.id] = call
        self._last[block.id] = call
        return call

    def find_call(self, call_id: str) -> OpenCall | None:
        """Return the last call with this id, finished or not."""
        return self._last.get(call_id)

    def send_call(self, call: OpenCall, **fields: Any) -> None:
        """Send a change of a call."""
        self.send("tool_call_update", toolCallId=call.id, **fields)

    def close_call(self, call: OpenCall, **fields: Any) -> None:
        """Send the end of a call."""
        self.calls.pop(call.block.id, None)
        self.send_call(call, **fields)

    def end_calls(self) -> None:
        """End the calls that the end of the run stopped."""
        for call in list(self.calls.values()):
            self.close_call(call, status="failed")
        self._last.clear()

    def send_compaction(self, event: Compacted) -> None:
        """Send that the conversation was replaced with a summary."""
        identifier = f"{self._run_id}/{event.turn}/compaction"
        text = f"About {event.before:,} tokens became {event.after:,} ({event.cause})."
        self.send(
            "compaction_update",
            compactionId=identifier,
            status="completed",
            summary=[make_text(text)],
        )

    def _send_chunk(self, kind: str, text: str, turn: int) -> None:
        message = f"{self._run_id}/{turn}/{kind}/{self._attempt}"
        content = {"type": "text", "text": sanitize(text)}
        self.send(_CHUNKS[kind], content=content, messageId=message)
