"""Connection: JSON-RPC 2.0 with one client, one message a line, requests both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any, cast

from msgspec import Struct

from ...errors import MudroomError, UsageError
from .errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    ClientGone,
    RequestError,
)

Params = Mapping[str, Any]
CANCEL_METHOD = "$/cancel_request"
_MAX_SHOWN = 200
"""Characters shown of a line that is not understood."""


class Reply(Struct, frozen=True):
    """Result of a request.

    Arguments:
        follow: called when the result has been sent.
    """

    result: dict[str, Any]
    follow: Callable[[], object] | None = None


class Connection:
    """Messages to and from one client.

    Arguments:
        write: writes one whole line.
        answer: begins a request, by method; called in the order of the lines. The result is
            awaited in a task of its own. Raises RequestError.
        receive: takes a notification; called in the order of the lines.
        notify: takes a line for stderr.
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
        self._tasks: dict[str | int, asyncio.Task[None]] = {}
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self.is_closed = False

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        """Handle the lines of the client until their end."""
        async for line in lines:
            if line.strip():
                self._handle_line(line)

    async def close(self) -> None:
        """End the requests to the client, and wait for those of the client."""
        self.is_closed = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ClientGone("a request"))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def send_notification(self, method: str, params: Params) -> None:
        """Send a message that has no answer."""
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Params) -> dict[str, Any]:
        """Send a request and return its result.

        A cancel of the caller withdraws the request. Raises RequestError.
        """
        if self.is_closed:
            raise ClientGone(method)
        number = next(self._numbers)
        future = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        self._send({"id": number, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            if not self.is_closed:
                self.send_notification(CANCEL_METHOD, {"requestId": number})
            raise
        finally:
            self._pending.pop(number, None)

    def _send(self, message: Mapping[str, Any]) -> None:
        line = {"jsonrpc": "2.0", **message}
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        self._write(text.encode("utf-8", "replace") + b"\n")

    def _handle_line(self, line: bytes) -> None:
        """Handle one line. One that is not understood gets an error, and stderr a notice."""
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
        value = message.get("params")
        params = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
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
            task = self._tasks.get(cast("Any", params.get("requestId")))
            if task:
                task.cancel()
            return
        self._receive(method, params)

    def _receive_response(self, identifier: int, message: Mapping[str, Any]) -> None:
        """Hand a response to the caller that waits; a late or unknown one is ignored."""
        future = self._pending.get(identifier)
        if future is None or future.done():
            return
        if isinstance(error := message.get("error"), dict):
            fields = cast("dict[str, Any]", error)
            code = fields.get("code")
            text = str(fields.get("message") or "no reason was given")
            code = code if isinstance(code, int) else INTERNAL_ERROR
            future.set_exception(RequestError(code, text))
            return
        result = message.get("result")
        future.set_result(cast("dict[str, Any]", result) if isinstance(result, dict) else {})

    def _start_answer(self, identifier: str | int, method: str, params: Params) -> None:
        if identifier in self._tasks:
            self._reject(INVALID_REQUEST, f"the id {identifier!r} belongs to an open request")
            return
        try:
            reply = self._answer(method, params)
        except RequestError as error:
            self._send({"id": identifier, "error": error.to_json()})
            return
        task = asyncio.create_task(self._finish_answer(identifier, reply))
        self._tasks[identifier] = task
        task.add_done_callback(lambda _: self._tasks.pop(identifier, None))

    async def _finish_answer(self, identifier: str | int, reply: Awaitable[Reply]) -> None:
        try:
            answer = await reply
        except asyncio.CancelledError:
            error = RequestError(REQUEST_CANCELLED, "the request was cancelled")
        except RequestError as request_error:
            error = request_error
        except UsageError as usage_error:
            error = RequestError(INVALID_PARAMS, str(usage_error))
        except MudroomError as mudroom_error:
            error = RequestError(INTERNAL_ERROR, str(mudroom_error))
        except Exception as bug:  # noqa: BLE001  (the client waits for an answer in any case)
            text = f"{type(bug).__name__}: {bug}. This is a bug in mudroom."
            self._notify(text)
            error = RequestError(INTERNAL_ERROR, text)
        else:
            self._send({"id": identifier, "result": answer.result})
            if answer.follow:
                answer.follow()
            return
        self._send({"id": identifier, "error": error.to_json()})


def _cut(text: object) -> str:
    return repr(text)[:_MAX_SHOWN]
