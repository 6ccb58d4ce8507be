"""ControlChannel: requests to the host and their responses, beside the lines of the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from ...errors import MudroomError
from .json_fields import as_list, as_object


class HostError(MudroomError):
    """A request to the host failed: it answered with an error, or it has closed its end."""


class ControlChannel:
    """Requests to the program that started mudroom, and responses to its requests.

    Arguments:
        write: writes one whole line.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self.is_closed = False

    def send(self, line: Mapping[str, Any]) -> None:
        """Write a line; long texts are cut."""
        self._write(encode_line(line))

    def answer(self, request_id: str, response: Mapping[str, Any], **more: object) -> None:
        """Answer a request of the host. `more`: fields beside the response."""
        body = {"subtype": "success", "request_id": request_id, "response": response, **more}
        self.send({"type": "control_response", "response": body})

    def answer_error(self, request_id: str, error: str) -> None:
        """Answer a request of the host with an error."""
        body = {"subtype": "error", "request_id": request_id, "error": error}
        self.send({"type": "control_response", "response": body})

    async def request(self, subtype: str, **fields: object) -> dict[str, Any]:
        """Send a request to the host and return its response.

        A cancel of the caller withdraws the request. Raises HostError.
        """
        request_id = f"mudroom_{next(self._numbers)}"
        request = {"subtype": subtype, **fields}
        line = {"type": "control_request", "request_id": request_id, "request": request}
        if not fits(line):
            raise HostError(
                f"the request {subtype} is longer than the agent SDK reads",
                remedy="Use shorter arguments.",
            )
        if self.is_closed:
            raise _explain_closed(subtype)
        future = asyncio.get_running_loop().create_future()
        self._pending[request_id] = future
        self.send(line)
        try:
            return await future
        except asyncio.CancelledError:
            if not self.is_closed:
                self.send({"type": "control_cancel_request", "request_id": request_id})
            raise
        finally:
            self._pending.pop(request_id, None)

    def receive_response(self, response: Mapping[str, Any]) -> None:
        """Hand a response of the host to the caller that waits; a late one is ignored."""
        future = self._pending.get(str(response.get("request_id")))
        if future is None or future.done():
            return
        if response.get("subtype") == "error":
            future.set_exception(HostError(str(response.get("error") or "no reason was given")))
            return
        future.set_result(as_object(response.get("response")))

    def close(self) -> None:
        """End all requests: the host answers no more."""
        self.is_closed = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(_explain_closed("control"))


def _explain_closed(subtype: str) -> HostError:
    return HostError(f"the program that started mudroom closed its end before the {subtype} answer")


MAX_LINE = 900_000
"""Bytes of a line. The SDKs end the session at a line of more than 1 MiB."""

_CAPS = (100_000, 10_000, 1_000, 100)
"""Characters of the longest text, one cap after the other until the line fits."""

_LISTS = ("reports", "permission_denials")
"""Fields that are left out if no cap suffices."""


def encode_line(line: Mapping[str, Any]) -> bytes:
    """Return a line of output with its line feed, with long texts cut if it would be too long."""
    data = _encode(line)
    for cap in _CAPS:
        if len(data) <= MAX_LINE:
            return data
        data = _encode(_cut_texts(dict(line), cap))
    if len(data) > MAX_LINE:
        data = _encode(_cut_texts({**line, **{name: [] for name in _LISTS if name in line}}, 100))
    return data


def fits(line: Mapping[str, Any]) -> bool:
    """Return whether a line is short enough without a cut."""
    return len(_encode(line)) <= MAX_LINE


def _encode(line: Mapping[str, Any]) -> bytes:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _cut_texts(value: Any, cap: int) -> Any:  # noqa: ANN401  (any JSON value)
    """Return a JSON value with texts of at most `cap` characters and a note."""
    if isinstance(value, str):
        left_out = len(value) - cap
        return f"{value[:cap]}\n[… {left_out:,} characters left out …]" if left_out > 0 else value
    if fields := as_object(value):
        return {key: _cut_texts(item, cap) for key, item in fields.items()}
    if items := as_list(value):
        return [_cut_texts(item, cap) for item in items]
    return value
