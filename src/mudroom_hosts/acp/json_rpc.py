"""JSON-RPC 2.0 with one client: one message a line, requests both ways, and their errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from msgspec import Struct

from mudroom.driving import Peer, PeerGone
from mudroom.errors import MudroomError, UsageError

from ..json_values import as_object
from ..line_streams import encode_json_line

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
NOT_FOUND = -32002

Params = Mapping[str, Any]
CANCEL_METHOD = "$/cancel_request"
_MAX_SHOWN = 200  # characters of an unreadable line to show


class RequestError(Exception):
    """A request failed; the other side gets code, message and details."""

    def __init__(self, code: int, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details

    def to_json(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        return error | ({"data": self.details} if self.details else {})


class Reply(Struct, frozen=True):
    result: dict[str, Any]
    follow: Callable[[], object] | None = None  # called when the result has been sent


class Connection:
    """Messages to and from one client.

    Arguments:
        answer: begins a request, by method; called in line order. The result is
            awaited in a separate task. Raises RequestError.
        receive: takes a notification; called in line order.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        answer: Callable[[str, Params], Awaitable[Reply]],
        receive: Callable[[str, Params], None],
        notify: Callable[[str], object],
    ) -> None:
        self._write = write
        self._answer = answer
        self._receive = receive
        self._notify = notify
        self._peer = Peer[Mapping[str, Any], dict[str, Any]](self._send)

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        async for line in lines:
            if line.strip():
                self._handle_line(line)

    async def close(self) -> None:
        """End the requests to the client, and wait for the client's."""
        self._peer.end()
        await self._peer.finish()

    def send_notification(self, method: str, params: Params) -> None:
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Params) -> dict[str, Any]:
        """Send a request and return its result. After a cancel, a late answer is ignored."""
        # Do not withdraw it with `$/cancel_request`: no capability says whether a client knows
        # that notification, and the official Python client reports it as an unknown method. When a
        # client cancels a prompt, it ends the prompt's questions itself.
        try:
            return await self._peer.request(
                lambda number: {"id": number, "method": method, "params": params}
            )
        except PeerGone:
            text = f"the editor closed its end before it answered {method}"
            raise RequestError(INTERNAL_ERROR, text) from None

    def _send(self, message: Mapping[str, Any]) -> None:
        self._write(encode_json_line({"jsonrpc": "2.0", **message}))

    def _handle_line(self, line: bytes) -> None:
        # Answer an unreadable line with an error, and note it on stderr.
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            self._reject(PARSE_ERROR, f"a line on stdin is no JSON: {error}")
            return
        if not isinstance(message, dict):
            self._reject(INVALID_REQUEST, f"a line on stdin is no JSON object: {_cut(line)}")
            return
        self._handle(cast("dict[str, Any]", message))

    def _handle(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        identifier = message.get("id")
        params = as_object(message.get("params"))
        if isinstance(method, str) and "id" not in message:
            self._receive_notification(method, params)
        elif isinstance(method, str) and type(identifier) in (str, int):
            self._start_answer(cast("str | int", identifier), method, params)
        elif method is None and isinstance(identifier, int):
            self._receive_response(identifier, message)
        else:
            self._reject(INVALID_REQUEST, f"a line on stdin is no message: {_cut(str(message))}")

    def _reject(self, code: int, text: str) -> None:
        self._notify(text)
        self._send({"id": None, "error": RequestError(code, text).to_json()})

    def _receive_notification(self, method: str, params: Params) -> None:
        if method == CANCEL_METHOD:
            identifier = params.get("requestId")
            if isinstance(identifier, str | int):  # lists and objects have no hash
                self._peer.cancel(identifier)
            return
        self._receive(method, params)

    def _receive_response(self, number: int, message: Mapping[str, Any]) -> None:
        if isinstance(message.get("error"), dict):
            fields = as_object(message["error"])
            code = fields.get("code")
            text = str(fields.get("message") or "no reason was given")
            code = code if isinstance(code, int) else INTERNAL_ERROR
            self._peer.fail(number, RequestError(code, text))
        else:
            self._peer.settle(number, as_object(message.get("result")))

    def _start_answer(self, identifier: str | int, method: str, params: Params) -> None:
        if self._peer.is_serving(identifier):
            self._reject(INVALID_REQUEST, f"the id {identifier!r} belongs to an open request")
            return
        try:
            reply = self._answer(method, params)
        except RequestError as error:
            self._send({"id": identifier, "error": error.to_json()})
            return
        work = self._finish_answer(identifier, reply)
        self._peer.serve(identifier, work, partial(self._send_error, identifier))

    async def _finish_answer(self, identifier: str | int, reply: Awaitable[Reply]) -> None:
        answer = await reply
        self._send({"id": identifier, "result": answer.result})
        if answer.follow:
            answer.follow()

    def _send_error(self, identifier: str | int, error: BaseException) -> None:
        if isinstance(error, RequestError):
            answer = error
        elif isinstance(error, asyncio.CancelledError):
            answer = RequestError(REQUEST_CANCELLED, "the request was cancelled")
        elif isinstance(error, UsageError):
            answer = RequestError(INVALID_PARAMS, str(error))
        elif isinstance(error, MudroomError):
            answer = RequestError(INTERNAL_ERROR, str(error))
        else:
            text = f"{type(error).__name__}: {error}. This is a bug in mudroom."
            self._notify(text)
            answer = RequestError(INTERNAL_ERROR, text)
        self._send({"id": identifier, "error": answer.to_json()})


def _cut(text: object) -> str:
    return repr(text)[:_MAX_SHOWN]
