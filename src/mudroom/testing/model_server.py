"""A model server on loopback that speaks three dialects by script, and breaks in every way a real one does.

`python -m mudroom.testing.model_server --help` runs one as a process of its own, with a parent-and-children script.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from .._core.messages import StopReason, TextBlock, ToolCallBlock, Usage
from . import wire_formats
from .wire_formats import Block, WireAnswer

if TYPE_CHECKING:
    from typing import Self


class _Named(msgspec.Struct):
    name: str = ""


class _Tool(_Named):
    function: _Named | None = None
    functionDeclarations: list[_Named] = []


class _Message(msgspec.Struct):
    role: str = ""


class _Outline(msgspec.Struct):
    """What a script mostly needs of a body; the rest is skipped, not parsed."""

    model: str = ""
    stream: bool = False
    messages: list[_Message] = []
    contents: list[_Message] = []
    tools: list[_Tool] = []


_outline = msgspec.json.Decoder(_Outline).decode


class ServerRequest:
    """One request as the server got it.

    Arguments:
        dialect: "anthropic", "openai" or "google". path: of the URL. headers: by name, case ignored. body: its raw bytes.
        n: its number on this server, from 1.
    """

    def __init__(
        self, dialect: str, path: str, headers: Mapping[str, str], body: bytes, number: int
    ) -> None:
        self.dialect, self.path, self.headers, self.body, self.n = (
            dialect,
            path,
            headers,
            body,
            number,
        )

    @cached_property
    def json(self) -> dict[str, Any]:
        """The body, parsed."""
        return msgspec.json.decode(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, in the dialect's own form."""
        return self.json["contents" if self.dialect == "google" else "messages"]

    @cached_property
    def _outline(self) -> _Outline:
        return _outline(self.body)

    @property
    def model(self) -> str:
        """The model asked for."""
        return self._outline.model or self.path.rpartition("/")[2].partition(":")[0]

    @property
    def is_streaming(self) -> bool:
        """Whether it asks for a stream."""
        return "stream" in self.path if self.dialect == "google" else self._outline.stream

    @property
    def tools(self) -> list[str]:
        """Names of the tools offered."""
        declared = (
            named
            for tool in self._outline.tools
            for named in (tool, tool.function, *tool.functionDeclarations)
            if named
        )
        return [named.name for named in declared if named.name]

    @property
    def turn(self) -> int:
        """How many answers of the model the conversation holds."""
        return sum(
            message.role in ("assistant", "model")
            for message in self._outline.messages or self._outline.contents
        )


class Fault(msgspec.Struct, frozen=True):
    """An answer that is not as it should be.

    Arguments:
        blocks: what would be said. status: HTTP status; other than 200 sends `body` at once.
        headers: added to the answer's, such as Retry-After. body: sent instead of the blocks; kind: its content type.
        cut: how many bytes of a stream come before its end. end: "close" breaks the connection there, "reset" does so
            rudely, "eof" ends the answer in good form, "stall" says nothing more. drip: bytes a time, and `pause` seconds after
            each. delay: seconds before the first byte. stop, usage: as reported; None for what the blocks suggest.
    """

    blocks: Sequence[Block] | str = ()
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


ServerAnswer = str | Sequence[Block] | Fault
Script = Callable[[ServerRequest], "ServerAnswer | Awaitable[ServerAnswer]"]


class ModelServer:
    """The server. `answer` is called for each request, and may be async; `delay` is seconds before each answer.

    Every request is kept in `requests` unless `record` is False; `count`, `bytes`, `flying`, `peak` are kept always.

    Example:
        async with ModelServer(lambda asked: "Hello.") as server:
            model = AnthropicModel("any", http=http, key="k", base_url=server.url)
    """

    def __init__(
        self, answer: Script, *, delay: float = 0.0, record: bool = True, port: int = 0
    ) -> None:
        self._answer, self._delay, self._record, self._port = answer, delay, record, port
        self.requests: list[ServerRequest] = []
        self.request_count = self.request_bytes = self.in_flight = self.peak_in_flight = 0
        self._closing = asyncio.Event()
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Base URL, without a path; OpenAI clients take it with `/v1`, Google's with `/v1beta`."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(
            web.Server(self._serve, handler_cancellation=True), shutdown_timeout=0.5
        )  # pyright: ignore[reportArgumentType]
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=4096)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/stats":
            return web.json_response(
                {
                    "requests": self.request_count,
                    "bytes": self.request_bytes,
                    "peak": self.peak_in_flight,
                }
            )
        dialect = next(
            (name for ending, name in _PATHS.items() if request.path.endswith(ending)), ""
        )
        if not dialect:
            return web.json_response(
                {"error": {"type": "not_found_error", "message": f"no such path: {request.path}"}},
                status=404,
            )
        body = await request.content.read()
        self.request_count += 1
        self.request_bytes += len(body)
        asked = ServerRequest(dialect, request.path, request.headers, body, self.request_count)
        if self._record:
            self.requests.append(asked)
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            said = self._answer(asked)
            return await self._reply(
                request, asked, await said if isinstance(said, Awaitable) else said
            )
        finally:
            self.in_flight -= 1

    async def _reply(
        self, request: web.BaseRequest, asked: ServerRequest, said: ServerAnswer
    ) -> web.StreamResponse:
        fault = said if isinstance(said, Fault) else Fault(said)
        if delay := fault.delay or self._delay:
            await asyncio.sleep(delay)
        if fault.status != 200 or (
            fault.body is not None and not fault.content_type.startswith("text/event-stream")
        ):
            kind = fault.content_type or "application/json"
            return web.Response(
                status=fault.status,
                body=fault.body or b"{}",
                headers={"Content-Type": kind, **fault.headers},
            )
        reply = _reply(asked, fault)
        stream, whole = _WRITERS[asked.dialect]
        if not asked.is_streaming:
            return web.Response(
                body=whole(reply), content_type="application/json", headers=fault.headers
            )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", **fault.headers}
        )
        await response.prepare(request)
        if fault.cut_after is None and not fault.chunk_size and fault.body is None:
            for event in stream(reply):
                await response.write(event)
        else:
            await self._break(
                request,
                response,
                fault,
                b"".join(stream(reply)) if fault.body is None else fault.body,
            )
        return response

    async def _break(
        self, request: web.BaseRequest, response: web.StreamResponse, fault: Fault, data: bytes
    ) -> None:
        data = data if fault.cut_after is None else data[: fault.cut_after]
        step = fault.chunk_size or len(data) or 1
        for at in range(0, len(data), step):
            await response.write(data[at : at + step])
            await asyncio.sleep(fault.pause)
        transport = request.transport
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


def _reply(asked: ServerRequest, fault: Fault) -> WireAnswer:
    blocks = (TextBlock(fault.blocks),) if isinstance(fault.blocks, str) else tuple(fault.blocks)
    stop = fault.stop_reason or (
        StopReason.CALLS
        if any(isinstance(block, ToolCallBlock) for block in blocks)
        else StopReason.END
    )
    usage = fault.usage or Usage(
        len(asked.body) // 4, max(1, sum(len(str(block)) for block in blocks) // 4)
    )
    return WireAnswer(blocks, asked.model, f"msg_{asked.n}", usage, stop)


_PATHS = {
    "/messages": "anthropic",
    "/chat/completions": "openai",
    ":streamGenerateContent": "google",
    ":generateContent": "google",
}
_WRITERS = {
    "anthropic": (wire_formats.anthropic_stream, wire_formats.anthropic_whole),
    "openai": (wire_formats.openai_stream, wire_formats.openai_whole),
    "google": (wire_formats.google_stream, wire_formats.google_whole),
}


def family_script(children: int, turns: int, *, file: str = "README.md", words: int = 80) -> Script:
    """A script: a parent (who has the tool `task`) makes `children` tasks at once; a child reads `file` `turns` times, then reports.

    Arguments:
        words: characters of each last answer.
    """
    last = ("All is well here. " * (words // 18 + 1))[:words]

    def answer(asked: ServerRequest) -> ServerAnswer:
        turn = asked.turn
        if "task" in asked.tools:
            tasks = (_task(f"Child {i}: read {file}.", i) for i in range(children))
            return last if turn else tuple(tasks)
        return (
            last
            if turn >= turns
            else (ToolCallBlock(f"read_{asked.n}", "read", {"file_path": file}),)
        )

    return answer


def _task(prompt: str, number: int) -> ToolCallBlock:
    return ToolCallBlock(
        f"task_{number}", "task", {"prompt": prompt, "description": f"child {number}"}
    )


async def _main() -> None:
    import argparse

    parser = argparse.ArgumentParser(
        description="A scripted model server on loopback; prints its URL and serves until stdin ends."
    )
    parser.add_argument("--children", type=int, default=20, help="tasks the parent makes at once")
    parser.add_argument(
        "--turns", type=int, default=10, help="reads of each child before its report"
    )
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--file", default="README.md", help="what the children read")
    parser.add_argument("--words", type=int, default=80, help="characters of each last answer")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    script = family_script(given.children, given.turns, file=given.file, words=given.words)
    async with ModelServer(script, delay=given.latency, record=False, port=given.port) as server:
        print(server.url, flush=True)  # noqa: T201
        await _stdin_ends()


async def _stdin_ends() -> None:
    import sys
    import threading

    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_main())
