"""The object and the events that clients of `/v1/responses` read."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import msgspec

from ...._core.runs import Report
from ..errors import RequestError
from ..records.inputs import Input
from ..records.sessions import SessionRecord

_PREFIX = "resp_"


def make_response_id(record: SessionRecord, item: Input) -> str:
    """Return the id of the answer to a prompt."""
    return f"{_PREFIX}{record.id.replace('-', '')}_{item.number}"


def split_response_id(text: str) -> tuple[str, int]:
    """Return the session and the number of the prompt; "" and 0 for a wrong id."""
    name, _, number = text.removeprefix(_PREFIX).partition("_")
    is_number = number.isascii() and number.isdecimal() and len(number) < 19
    if not text.startswith(_PREFIX) or len(name) != 32 or not is_number:
        return "", 0
    parts = (name[:8], name[8:12], name[12:16], name[16:20], name[20:])
    return "-".join(parts), int(number)


def make_response(
    record: SessionRecord, item: Input, model: str, previous: str | None
) -> dict[str, Any]:
    """Return an answer that has not begun."""
    return {
        "id": make_response_id(record, item),
        "object": "response",
        "created_at": record.created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": previous,
        "temperature": None,
        "tool_choice": "none",
        "tools": [],
        "top_p": None,
    }


def finish_response(
    response: Mapping[str, Any], text: str, report: Report[Any], *, is_whole: bool
) -> dict[str, Any]:
    """Return an answer with its text."""
    usage = report.usage
    return {
        **response,
        "status": "completed" if is_whole else "incomplete",
        "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
        "output": [make_message(response, text, is_whole=is_whole)],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
    }


def fail_response(response: Mapping[str, Any], error: RequestError) -> dict[str, Any]:
    """Return an answer that failed."""
    status = "cancelled" if error.code == "cancelled" else "failed"
    return {
        **response,
        "status": status,
        "error": {"code": "server_error", "message": error.message},
    }


def make_message(response: Mapping[str, Any], text: str, *, is_whole: bool) -> dict[str, Any]:
    """Return the one item of an answer."""
    return {
        "id": get_message_id(response),
        "type": "message",
        "role": "assistant",
        "status": "completed" if is_whole else "incomplete",
        "content": [make_part(text)],
    }


def make_part(text: str) -> dict[str, Any]:
    """Return the one part of the item."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def get_message_id(response: Mapping[str, Any]) -> str:
    """Return the id of the one item of an answer."""
    return f"msg_{response['id'].removeprefix(_PREFIX)}"


class ResponseEvents:
    """The events of one streamed answer, numbered."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self._numbers = count()
        self._response = response
        self._place = {
            "item_id": get_message_id(response),
            "output_index": 0,
            "content_index": 0,
        }

    def encode(self, kind: str, **fields: Any) -> bytes:
        """Return an event."""
        event = {"type": kind, "sequence_number": next(self._numbers), **fields}
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(event))

    def begin(self) -> bytes:
        """Return the events before the text."""
        response = self._response
        item = make_message(response, "", is_whole=True)
        item |= {"status": "in_progress", "content": []}
        return b"".join(
            [
                self.encode("response.created", response=response),
                self.encode("response.in_progress", response=response),
                self.encode("response.output_item.added", output_index=0, item=item),
                self.encode("response.content_part.added", **self._place, part=make_part("")),
            ]
        )

    def add(self, text: str) -> bytes:
        """Return the event for a piece of text."""
        return self.encode("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def end(self, text: str, finished: Mapping[str, Any]) -> bytes:
        """Return the events after the text."""
        place = self._place
        item = finished["output"][0]
        return b"".join(
            [
                self.encode("response.output_text.done", **place, text=text, logprobs=[]),
                self.encode("response.content_part.done", **place, part=make_part(text)),
                self.encode("response.output_item.done", output_index=0, item=item),
                self.encode(f"response.{finished['status']}", response=finished),
            ]
        )
