"""A transport for the package `mcp` over a server process's pipes.

The package's own transport has no limit on lines, does not end within two seconds, and does not
keep the error output. Import this module late: it imports the package.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from .server_process import MAX_LINE, ServerProcess

KEPT_BYTES = 4096  # to keep of each end of an overlong line

_SCALAR = rb'(?:"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null)'
_MEMBER = rb'\s*"\w+"\s*:\s*' + _SCALAR + rb"\s*"
# Only members directly after the first brace or before the last one certainly belong to the
# message. Between them is the result, which can contain anything, such as another "id".
_FIRST_MEMBERS = re.compile(rb"\s*\{((?:" + _MEMBER + rb",)*)")
_LAST_MEMBERS = re.compile(rb"((?:," + _MEMBER + rb")+)\}\s*$")


class LongLine(NamedTuple):
    head: bytes
    tail: bytes


async def read_line(stream: asyncio.StreamReader) -> bytes | LongLine:
    """Read the next line; b"" at the end. The middle of a line over the limit is dropped."""
    head = tail = b""
    while True:
        try:
            rest = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            rest = error.partial
        except asyncio.LimitOverrunError as error:
            part = await stream.readexactly(error.consumed)
            head = head or part[:KEPT_BYTES]
            tail = (tail + part[-KEPT_BYTES:])[-KEPT_BYTES:]
            continue
        return LongLine(head, (tail + rest)[-KEPT_BYTES:]) if head else rest


def read_members(line: bytes | LongLine) -> dict[str, Any]:
    """Read the certain members of a JSON-RPC message; {} for any other line.

    Of a broken or overlong line, these are the short members at its beginning; of an overlong one,
    also those at its end.
    """
    if isinstance(line, LongLine):
        first = _decode_members(_FIRST_MEMBERS.match(line.head))
        members = first | _decode_members(_LAST_MEMBERS.search(line.tail))
    else:
        try:
            value = json.loads(line)
        except ValueError:
            value = _decode_members(_FIRST_MEMBERS.match(line))
        members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return members if members.get("jsonrpc") == "2.0" else {}


def _decode_members(match: re.Match[bytes] | None) -> dict[str, Any]:
    try:
        return json.loads(b"{" + match[1].strip(b" \t\r\n,") + b"}") if match else {}
    except ValueError:
        return {}


PROBE_SECONDS = 2.0
"""Seconds to answer the question about its era, after which a server counts as old.

The package waits 10 seconds. If a new server was merely slow, it refuses the old greeting, and the
package asks again.
"""
_KEPT_LINES = 20  # lines of a server to keep for diagnosis that are not messages
_KEPT_CHARACTERS = 200  # of each
_LISTEN = "subscriptions/listen"  # request that a server answers only when it ends
_MAY_HAVE_ACTED = "the call may have had an effect"
_TOO_LONG = f"its answer is a line of more than {MAX_LINE >> 20} MiB; {_MAY_HAVE_ACTED}"
_TOO_LONG_FOR_ANY = (
    f"it sent a line of more than {MAX_LINE >> 20} MiB that does not say which call it answers, "
    f"so this call ended, too; {_MAY_HAVE_ACTED}"
)
_BROKEN = f"its answer is no valid message of JSON-RPC; {_MAY_HAVE_ACTED}"


class _PipeWriter:
    def __init__(
        self, stdin: asyncio.StreamWriter, note_sent: Callable[[SessionMessage], object]
    ) -> None:
        self._stdin = stdin
        self._note_sent = note_sent

    async def send(self, item: SessionMessage, /) -> None:
        self._note_sent(item)
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            self._stdin.write(text.encode() + b"\n")
            await self._stdin.drain()
        except (OSError, RuntimeError) as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Do nothing: the transport closes the input."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class StdioTransport:
    # The output is read to its end, and only HTTP has sessions and logins.
    fault = ""
    has_lost_session = False
    needs_login = False

    def __init__(self, process: ServerProcess, on_end: Callable[[], object]) -> None:
        self.ignored_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process = process
        self._on_end = on_end
        self._probe: asyncio.Task[None] | None = None
        self._probe_id: object = None
        self._open_requests: dict[str, mcp_types.JSONRPCRequest] = {}

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[TransportStreams]:
        """Yield the streams for the package. Leaving the block ends the process."""
        sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        reader = asyncio.create_task(self._read(sender))
        try:
            yield (
                receiver,
                _PipeWriter(self._process.stdin, lambda item: self._note_sent(item, sender)),
            )
        finally:
            tasks = [reader, self._probe] if self._probe else [reader]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            receiver.close()
            await asyncio.shield(self._process.stop())

    def _note_sent(
        self, item: SessionMessage, sender: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        # The question about the era is answered on behalf of a silent server.
        message = item.message
        if isinstance(message, mcp_types.JSONRPCNotification):
            if message.method == "notifications/cancelled" and message.params:
                self._open_requests.pop(str(message.params.get("requestId")), None)
            return
        if not isinstance(message, mcp_types.JSONRPCRequest):
            return
        self._open_requests[str(message.id)] = message
        if message.method == "server/discover":
            self._probe_id = message.id
            self._probe = asyncio.create_task(self._answer_probe(message.id, sender))

    async def _answer_probe(
        self,
        request_id: mcp_types.RequestId,
        sender: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        await asyncio.sleep(PROBE_SECONDS)
        answer = _make_error(request_id, mcp_types.METHOD_NOT_FOUND, "no answer")
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await sender.send(answer)

    async def _read(self, sender: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        try:
            async with sender:
                while line := await read_line(self._process.stdout):
                    messages = (
                        self._fail_long(line) if isinstance(line, LongLine) else self._parse(line)
                    )
                    for message in messages:
                        await sender.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass
        finally:
            self._on_end()

    def _parse(self, line: bytes) -> list[SessionMessage]:
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._keep_ignored(line)
            return self._fail_request(read_members(line), _BROKEN)
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
            self._open_requests.pop(str(message.id), None)
            if self._probe and message.id == self._probe_id:
                self._probe.cancel()
        return [SessionMessage(message)]

    def _fail_long(self, line: LongLine) -> list[SessionMessage]:
        """Make errors in place of an overlong answer, so that the server can continue."""
        self._keep_ignored(line.head)
        members = read_members(line)
        if members or not line.head.lstrip().startswith(b"{"):
            return self._fail_request(members, _TOO_LONG)
        # Any of the calls may be waiting for it, and would wait in vain. Reports of changes are
        # never that long.
        waiting = [key for key, each in self._open_requests.items() if each.method != _LISTEN]
        reason = _TOO_LONG if len(waiting) == 1 else _TOO_LONG_FOR_ANY
        return [each for key in waiting for each in self._fail_request({"id": key}, reason)]

    def _fail_request(self, members: dict[str, Any], reason: str) -> list[SessionMessage]:
        """Make an error for the request that a message answers, if any."""
        if "method" in members:
            self._refuse(members)
            return []
        request = self._open_requests.pop(str(members.get("id")), None)
        if request is None:
            return []
        return [_make_error(request.id, mcp_types.INTERNAL_ERROR, reason)]

    def _refuse(self, members: dict[str, Any]) -> None:
        """Answer an unreadable request from the server, which would otherwise keep waiting."""
        if (request_id := members.get("id")) is not None:
            error = {"code": mcp_types.INVALID_REQUEST, "message": "the request cannot be read"}
            answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
            self._process.stdin.write(json.dumps(answer).encode() + b"\n")

    def _keep_ignored(self, line: bytes) -> None:
        if line.strip():
            self.ignored_lines.append(line[:_KEPT_CHARACTERS].decode("utf-8", "replace"))


def _make_error(request_id: mcp_types.RequestId, code: int, text: str) -> SessionMessage:
    error = mcp_types.ErrorData(code=code, message=text)
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
