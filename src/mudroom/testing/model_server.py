"""Scripted model server on loopback: five wire formats, and the faults of real servers.

`python -m mudroom.testing.model_server` runs one as a program, with a script for a parent and its
children; see `--help`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from .._core.messages import StopReason, TextBlock, ToolCallBlock, Usage, resolve_stop_reason
from . import wire_formats
from .wire_formats import Block, WireAnswer

if TYPE_CHECKING:
    from typing import Self

_EVENT_STREAM = "text/event-stream"


class _Named(msgspec.Struct):
    name: str = ""


class _Tool(_Named):
    function: _Named | None = None
    functionDeclarations: list[_Named] = []


class _Message(msgspec.Struct):
    role: str = ""
    type: str = ""

    @property
    def is_from_model(self) -> bool:
        return self.role in ("assistant", "model") or self.type in ("function_call", "reasoning")


class _Outline(msgspec.Struct):
    """The fields of a request body most scripts need. The decoder skips the others."""

    model: str = ""
    stream: bool = False
    messages: list[_Message] = []
    contents: list[_Message] = []
    input: list[_Message] | str = []
    tools: list[_Tool] = []


_decode_outline = msgspec.json.Decoder(_Outline).decode


class ServerRequest:
    """One request, as the server received it.

    Arguments:
        dialect: "anthropic", "openai", "openai-responses", "google" or "ollama".
        path: path of the URL.
        headers: HTTP headers; names ignore case.
        body: raw bytes.
        number: the request's number on this server, from 1.
    """

    def __init__(
        self, dialect: str, path: str, headers: Mapping[str, str], body: bytes, number: int
    ) -> None:
        self.dialect = dialect
        self.path = path
        self.headers = headers
        self.body = body
        self.number = number

    @cached_property
    def json(self) -> dict[str, Any]:
        """Return the decoded body."""
        return msgspec.json.decode(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages in the dialect's form."""
        return self.json[_MESSAGES_FIELDS.get(self.dialect, "messages")]

    @cached_property
    def _outline(self) -> _Outline:
        return _decode_outline(self.body)

    @property
    def model(self) -> str:
        """Return the name of the requested model."""
        return self._outline.model or self.path.rpartition("/")[2].partition(":")[0]

    @property
    def is_streaming(self) -> bool:
        """Return whether the client asks for a stream."""
        return "stream" in self.path if self.dialect == "google" else self._outline.stream

    @property
    def tools(self) -> list[str]:
        """Return the names of the offered tools."""
        names: list[str] = []
        for tool in self._outline.tools:
            for named in (tool, tool.function, *tool.functionDeclarations):
                if named and named.name:
                    names.append(named.name)
        return names

    @property
    def turn(self) -> int:
        """Return the number of model answers in the conversation."""
        outline = self._outline
        if isinstance(outline.input, list) and outline.input:
            # In the Responses API, one answer is several items.
            kinds = [item.is_from_model for item in outline.input]
            return sum(now and not before for before, now in pairwise([False, *kinds]))
        return sum(message.is_from_model for message in outline.messages or outline.contents)


class Fault(msgspec.Struct, frozen=True):
    """A faulty answer, or one with its own status, headers, timing or usage.

    Arguments:
        blocks: the answer before it is damaged.
        status: HTTP status; any but 200 sends `body` at once.
        headers: additional headers, such as Retry-After.
        body: bytes to send instead of the blocks. content_type: its type.
        cut_after: number of bytes of a stream to send before it ends.
        end: end of a cut stream: "close" closes the connection, "reset" sends a TCP reset, "eof"
            ends the response normally, "stall" keeps the connection open and silent.
        chunk_size: bytes per write. pause: seconds after each write.
        delay: seconds before the first byte.
        stop_reason, usage: values to report; None derives them from the blocks.
    """

    blocks: Sequence[Block | str] | str = ()
    status: int = 200
    headers: dict[str, str] = {}
    body: bytes | None = None
    content_type: str = ""
    cut_after: int | None = None
    end: str = "close"
    chunk_size: int = 0
    pause: float = 0.0
    delay: float = 0.0
    stop_reason: StopReason | None = None
    usage: Usage | None = None


ServerAnswer = str | Sequence[Block | str] | Fault
Script = Callable[[ServerRequest], "ServerAnswer | Awaitable[ServerAnswer]"]


class ModelServer:
    """A model server that answers by script.

    Arguments:
        answer: called for each request; may be async.
        delay: seconds before each answer.
        record: keep every request in `requests`.
        port: 0 takes a free port.

    The counters `request_count`, `request_bytes`, `in_flight` and `peak_in_flight` are always kept.

    Example:
        async with ModelServer(lambda request: "Hello.") as server:
            environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
            async with Session(environ=environ, journal="memory") as served:
                report = await served.run("Greet me.")
        report.text == "Hello."
    """

    def __init__(
        self, answer: Script, *, delay: float = 0.0, record: bool = True, port: int = 0
    ) -> None:
        self._answer = answer
        self._delay = delay
        self._record = record
        self._port = port
        self.requests: list[ServerRequest] = []
        self.request_count = 0
        self.request_bytes = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self._closing = asyncio.Event()
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Return the base URL without a path.

        OpenAI clients add `/v1`, Google clients `/v1beta`.
        """
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        server: Any = web.Server(self._serve, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=4096)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.path == "/stats":
            return web.json_response(
                {
                    "requests": self.request_count,
                    "bytes": self.request_bytes,
                    "peak": self.peak_in_flight,
                }
            )
        dialect = next((name for end, name in _DIALECTS.items() if http.path.endswith(end)), "")
        if not dialect:
            error = {"type": "not_found_error", "message": f"no such path: {http.path}"}
            return web.json_response({"error": error}, status=404)
        body = await http.content.read()
        self.request_count += 1
        self.request_bytes += len(body)
        request = ServerRequest(dialect, http.path, http.headers, body, self.request_count)
        if self._record:
            self.requests.append(request)
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            answer = self._answer(request)
            if isinstance(answer, Awaitable):
                answer = await answer
            return await self._respond(http, request, answer)
        finally:
            self.in_flight -= 1

    async def _respond(
        self, http: web.BaseRequest, request: ServerRequest, answer: ServerAnswer
    ) -> web.StreamResponse:
        fault = answer if isinstance(answer, Fault) else Fault(answer)
        if delay := fault.delay or self._delay:
            await asyncio.sleep(delay)
        has_plain_body = fault.body is not None and not fault.content_type.startswith(_EVENT_STREAM)
        if fault.status != 200 or has_plain_body:
            content_type = fault.content_type or "application/json"
            headers = {"Content-Type": content_type, **fault.headers}
            return web.Response(status=fault.status, body=fault.body or b"{}", headers=headers)
        wire_answer = _wire_answer(request, fault)
        stream, whole = wire_formats.WRITERS[request.dialect]
        if not request.is_streaming:
            return web.Response(
                body=whole(wire_answer), content_type="application/json", headers=fault.headers
            )
        is_ollama = request.dialect == "ollama"
        kind = "application/x-ndjson" if is_ollama else f"{_EVENT_STREAM}; charset=utf-8"
        headers = {"Content-Type": kind, **fault.headers}
        response = web.StreamResponse(headers=headers)
        await response.prepare(http)
        if fault.cut_after is None and not fault.chunk_size and fault.body is None:
            for event in stream(wire_answer):
                await response.write(event)
        else:
            data = b"".join(stream(wire_answer)) if fault.body is None else fault.body
            await self._write_damaged(http, response, fault, data)
        return response

    async def _write_damaged(
        self, http: web.BaseRequest, response: web.StreamResponse, fault: Fault, data: bytes
    ) -> None:
        data = data if fault.cut_after is None else data[: fault.cut_after]
        step = fault.chunk_size or len(data) or 1
        for start in range(0, len(data), step):
            await response.write(data[start : start + step])
            await asyncio.sleep(fault.pause)
        transport = http.transport
        if fault.cut_after is None or fault.end == "eof" or transport is None:
            return
        if fault.end == "stall":
            await self._closing.wait()
        elif fault.end == "reset":
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
            transport.abort()
        else:
            transport.close()


def _wire_answer(request: ServerRequest, fault: Fault) -> WireAnswer:
    parts = [fault.blocks] if isinstance(fault.blocks, str) else fault.blocks
    blocks = tuple(TextBlock(part) if isinstance(part, str) else part for part in parts)
    stop_reason = fault.stop_reason or resolve_stop_reason(StopReason.END, blocks)
    # Estimate: four characters per token.
    written = max(1, sum(len(str(block)) for block in blocks) // 4)
    usage = fault.usage or Usage(len(request.body) // 4, written)
    return WireAnswer(blocks, request.model, f"msg_{request.number}", usage, stop_reason)


_DIALECTS = {
    "/messages": "anthropic",
    "/chat/completions": "openai",
    "/responses": "openai-responses",
    ":streamGenerateContent": "google",
    ":generateContent": "google",
    "/api/chat": "ollama",
}
"""End of path -> dialect."""

_MESSAGES_FIELDS = {"google": "contents", "openai-responses": "input"}


def family_script(
    children: int, turns: int, *, file: str = "README.md", characters: int = 80
) -> Script:
    """Make a script for a parent and its children.

    The parent, which has the tool `task`, starts all children at once. Each child reads a file
    `turns` times, then reports.

    Arguments:
        children: number of children.
        turns: number of times each child reads `file`.
        characters: length of each final answer.
    """
    sentence = "All is well here. "
    final = (sentence * (characters // len(sentence) + 1))[:characters]

    def answer(request: ServerRequest) -> ServerAnswer:
        turn = request.turn
        if "task" in request.tools:
            return final if turn else tuple(_task_call(n, file) for n in range(children))
        if turn >= turns:
            return final
        return (ToolCallBlock(f"read_{request.number}", "read", {"file_path": file}),)

    return answer


def _task_call(number: int, file: str) -> ToolCallBlock:
    arguments = {"prompt": f"Child {number}: read {file}.", "description": f"child {number}"}
    return ToolCallBlock(f"task_{number}", "task", arguments)


async def _main() -> None:
    import argparse

    parser = argparse.ArgumentParser(
        description="Scripted model server on loopback. Prints its URL and serves until stdin ends."
    )
    parser.add_argument("--children", type=int, default=20, help="tasks of the parent")
    parser.add_argument("--turns", type=int, default=10, help="reads of each child")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--file", default="README.md", help="file that the children read")
    parser.add_argument(
        "--words", type=int, default=80, metavar="CHARACTERS", help="length of each final answer"
    )
    parser.add_argument("--port", type=int, default=0)
    flags = parser.parse_args()
    script = family_script(flags.children, flags.turns, file=flags.file, characters=flags.words)
    async with ModelServer(script, delay=flags.latency, record=False, port=flags.port) as server:
        print(server.url, flush=True)  # noqa: T201
        await _wait_for_stdin_end()


async def _wait_for_stdin_end() -> None:
    import sys
    import threading

    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_main())
