"""ControlChannel: requests to the host and their responses, among the session's lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mudroom.driving import Peer, PeerGone
from mudroom.errors import MudroomError

from ..json_values import as_list, as_object
from ..line_streams import encode_json_line


class HostError(MudroomError):
    """A request to the host failed: it answered with an error or closed the connection."""


class ControlChannel:
    """Requests to the program that started mudroom, and responses to its requests."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._peer = Peer[Mapping[str, Any], dict[str, Any]](self.send)

    @property
    def is_closed(self) -> bool:
        return self._peer.is_gone

    def send(self, line: Mapping[str, Any]) -> None:
        self._write(encode_line(line))

    def answer(self, request_id: str, response: Mapping[str, Any], **more: object) -> None:
        body = {"subtype": "success", "request_id": request_id, "response": response, **more}
        self.send({"type": "control_response", "response": body})

    def answer_error(self, request_id: str, error: str) -> None:
        body = {"subtype": "error", "request_id": request_id, "error": error}
        self.send({"type": "control_response", "response": body})

    async def request(self, subtype: str, **fields: object) -> dict[str, Any]:
        """Send a request and return its response. If the caller is cancelled, withdraw it."""
        request = {"subtype": subtype, **fields}

        def make_line(number: int) -> Mapping[str, Any]:
            line = {"type": "control_request", "request_id": _make_id(number), "request": request}
            if not fits(line):
                raise HostError(
                    f"the request {subtype} is longer than the agent SDK reads",
                    remedy="Use shorter arguments.",
                )
            return line

        def make_withdrawal(number: int) -> Mapping[str, Any]:
            return {"type": "control_cancel_request", "request_id": _make_id(number)}

        try:
            return await self._peer.request(make_line, make_withdrawal)
        except PeerGone:
            raise HostError(
                f"the program that started mudroom closed its end before the {subtype} answer"
            ) from None

    def receive_response(self, response: Mapping[str, Any]) -> None:
        """Hand a response from the host to the waiting caller; ignore a late one."""
        digits = str(response.get("request_id")).removeprefix(_ID_PREFIX)
        number = int(digits) if digits.isdecimal() else 0  # 0 is none of our requests
        if response.get("subtype") == "error":
            error = HostError(str(response.get("error") or "no reason was given"))
            self._peer.fail(number, error)
        else:
            self._peer.settle(number, as_object(response.get("response")))

    def close(self) -> None:
        self._peer.end()


_ID_PREFIX = "mudroom_"  # tells our requests from the host's, which share the lines


def _make_id(number: int) -> str:
    return f"{_ID_PREFIX}{number}"


MAX_LINE = 900_000  # bytes of a line. The SDKs end the session at a line of more than 1 MiB.

_CAPS = (100_000, 10_000, 1_000, 100)
"""Caps on text length, in characters, tried in turn until the line fits."""

_LISTS = ("reports", "permission_denials")  # fields left out if no cap suffices


def encode_line(line: Mapping[str, Any]) -> bytes:
    """Encode a line of output with its line feed, cutting long texts if it is too long."""
    data = encode_json_line(line)
    for cap in _CAPS:
        if len(data) <= MAX_LINE:
            return data
        data = encode_json_line(_cut_texts(dict(line), cap))
    if len(data) > MAX_LINE:
        emptied: dict[str, Any] = {name: [] for name in _LISTS if name in line}
        data = encode_json_line(_cut_texts({**line, **emptied}, 100))
    return data


def fits(line: Mapping[str, Any]) -> bool:
    """Return whether a line needs no cut."""
    return len(encode_json_line(line)) <= MAX_LINE


def _cut_texts(value: Any, cap: int) -> Any:  # noqa: ANN401  (any JSON value)
    """Cut the texts of a JSON value to `cap` characters and a note."""
    if isinstance(value, str):
        left_out = len(value) - cap
        return f"{value[:cap]}\n[… {left_out:,} characters left out …]" if left_out > 0 else value
    if fields := as_object(value):
        return {key: _cut_texts(item, cap) for key, item in fields.items()}
    if items := as_list(value):
        return [_cut_texts(item, cap) for item in items]
    return value
