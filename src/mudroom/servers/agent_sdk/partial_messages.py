"""Streamed parts of the root run's answers, as events of the Messages API."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ..._core.events import (
    AnyEvent,
    Delta,
    ModelCallRetried,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from ..._core.messages import ToolCallBlock, get_sendable_arguments
from ..._core.run_ids import is_child_id
from ...projections.anthropic_shapes import to_anthropic_stop_reason, to_anthropic_usage
from ...projections.claude.tool_terms import get_claude_name
from .host_names import to_host_arguments

_KINDS = {
    "text": ({"type": "text", "text": ""}, "text_delta", "text"),
    "thinking": (
        {"type": "thinking", "thinking": "", "signature": ""},
        "thinking_delta",
        "thinking",
    ),
}
"""Kind of a delta: its empty block, the type of its part, and the field of the text."""


class PartialMessages:
    """Fold of the events of root runs into `stream_event` lines.

    Text and thinking are streamed; a tool call follows in one part when the answer is complete.

    Arguments:
        session: id of the session. cwd: its folder.
    """

    def __init__(self, session: str, cwd: str, model: str) -> None:
        self._session = session
        self._cwd = cwd
        self._model = model
        self._is_open = False
        self._kind = ""
        self._index = -1

    def make_lines(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """Yield the lines of an event, often none."""
        if not event.run or is_child_id(event.run):
            return
        match event:
            case TurnStarted():
                self._is_open = False
                self._kind = ""
            case Delta(kind="text" | "thinking") if event.text:
                yield from self._add_text(event)
            case TurnFinished():
                yield from self._finish(event)
            case TurnFailed() | ModelCallRetried():
                yield from self._close_block()
                if self._is_open:
                    yield self._make_line({"type": "message_stop"})
                self._is_open = False
            case _:
                pass

    def _open(self, message_id: str = "") -> Iterator[dict[str, Any]]:
        if self._is_open:
            return
        self._is_open = True
        self._index = -1
        message: dict[str, Any] = {
            "id": message_id or f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        yield self._make_line({"type": "message_start", "message": message})

    def _add_text(self, event: Delta) -> Iterator[dict[str, Any]]:
        yield from self._open()
        empty, part, field = _KINDS[event.kind]
        if self._kind != event.kind:
            yield from self._close_block()
            yield from self._open_block(empty)
            self._kind = event.kind
        yield self._make_block_line("delta", delta={"type": part, field: event.text})

    def _finish(self, event: TurnFinished) -> Iterator[dict[str, Any]]:
        message = event.message
        yield from self._open(message.id)
        yield from self._close_block()
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                yield from self._add_call(block)
        delta = {"stop_reason": to_anthropic_stop_reason(message), "stop_sequence": None}
        usage = to_anthropic_usage(message.usage)
        yield self._make_line({"type": "message_delta", "delta": delta, "usage": usage})
        yield self._make_line({"type": "message_stop"})
        self._is_open = False

    def _add_call(self, call: ToolCallBlock) -> Iterator[dict[str, Any]]:
        name = get_claude_name(call.name)
        arguments = to_host_arguments(call.name, get_sendable_arguments(call), self._cwd)
        yield from self._open_block({"type": "tool_use", "id": call.id, "name": name, "input": {}})
        part = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        yield self._make_block_line("delta", delta=part)
        yield self._make_block_line("stop")

    def _open_block(self, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        self._index += 1
        yield self._make_block_line("start", content_block=block)

    def _close_block(self) -> Iterator[dict[str, Any]]:
        if self._kind:
            self._kind = ""
            yield self._make_block_line("stop")

    def _make_block_line(self, step: str, **fields: object) -> dict[str, Any]:
        return self._make_line({"type": f"content_block_{step}", "index": self._index, **fields})

    def _make_line(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "type": "stream_event",
            "event": event,
            "parent_tool_use_id": None,
            "session_id": self._session,
            "uuid": str(uuid.uuid4()),
        }
