"""An MCP host, played by the client of the package `mcp`, at the pipes of a real server."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from tests.waiting import SECONDS

from mudroom import Permissions, Session
from mudroom._cli.actions.serve_mcp import find_owner
from mudroom._core.agents import Mode
from mudroom._core.ports import Approver
from mudroom.driving import ListenOptions, ServerAddress
from mudroom.testing import ScriptedModel
from mudroom_hosts.line_streams import LineInput, LineOutput
from mudroom_hosts.mcp.server import McpOptions, McpServer, Pipes
from mudroom_hosts.mcp.stdio import MessageWriter
from mudroom_serve.state.state_file import StateFile
from mudroom_serve.state.tokens import TokenRecords

from ..line_client import LineClient

EXTENSION = "io.modelcontextprotocol/tasks"
ERAS = ("2026-07-28", "legacy")
"""Modes of the client: the newer revision, and that with a handshake."""


class McpHost:
    """A server at two pipes, and the session that it uses. `more`: options of the session."""

    def __init__(
        self, folder: Path, script: Any, options: McpOptions, mode: str, **more: Any
    ) -> None:
        self.permissions = Permissions(mode=Mode(mode), can_ask=True)
        self.model = ScriptedModel(script)
        self.notices: list[str] = []
        self.sessions: list[Session] = []
        self._folder = folder
        self._options = options
        self._more = more
        self.running: asyncio.Task[None] | None = None

    def _make_session(self, approver: Approver) -> Session:
        session = Session(
            model=self.model,
            cwd=str(self._folder),
            home=str(self._folder.parent / "home"),
            sandbox="off",
            permissions=self.permissions,
            approver=approver,
            environ={"HOME": str(self._folder)},
            **self._more,
        )
        self.sessions.append(session)
        return session

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[tuple[int, int]]:
        """Run the server; yield the descriptors that the host reads and writes.

        The end of the block closes the pipe to the server, which must end then.
        """
        to_server, host_writes = os.pipe()
        host_reads, from_server = os.pipe()
        server = McpServer(self._make_session, self._options, self.notices.append)
        self.running = asyncio.create_task(server.serve(Pipes(to_server, from_server)))
        try:
            try:
                yield host_reads, host_writes
            finally:
                _close(host_writes)
            async with asyncio.timeout(SECONDS):
                await self.running
        finally:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
            _close(from_server)
            # A thread that came late to its next read would read from a pipe of the same number.
            for thread in threading.enumerate():
                if thread.name == "line input":
                    await asyncio.to_thread(thread.join, SECONDS)
            _close(to_server)
            _close(host_reads)

    @asynccontextmanager
    async def connect_raw(self, *, shakes_hands: bool = True) -> AsyncGenerator[RawHost]:
        async with self.serve() as ends:
            raw = RawHost(*ends)
            if shakes_hands:
                await raw.shake_hands(elicitation={})
            yield raw
            await raw.stop_reading()

    @asynccontextmanager
    async def connect_tasks(self) -> AsyncGenerator[TaskHost]:
        async with self.serve() as ends:
            host = TaskHost(*ends)
            yield host
            await host.stop_reading()

    @asynccontextmanager
    async def connect(self, era: str = ERAS[0], **more: Any) -> AsyncGenerator[Client]:
        """Run the server and a client. `more`: callbacks of the client."""
        async with self.serve() as (reads, writes):
            async with Client(_open_pipes(reads, writes), mode=era, **more) as client:
                yield client


class HttpHost:
    """A server at an address of loopback, and the hosts that connect to it."""

    def __init__(self, host: McpHost, home: Path) -> None:
        self._host = host
        self._home = home
        self.url = ""

    def make_token(self, owner: str, **fields: Any) -> str:
        with closing(StateFile(str(self._home))) as state:
            return TokenRecords(state).add(owner, **fields)[1]

    @asynccontextmanager
    async def serve(self, **options: Any) -> AsyncGenerator[HttpHost]:
        """Run the server. `options`: where it listens."""
        opened = asyncio.Event()

        def note(address: ServerAddress) -> None:
            self.url = address.url
            opened.set()

        with closing(StateFile(str(self._home))) as state:
            server = McpServer(
                self._host._make_session, self._host._options, self._host.notices.append
            )
            running = asyncio.create_task(
                server.serve_http(
                    ListenOptions(port=0, **options),
                    partial(find_owner, TokenRecords(state)),
                    note,
                )
            )
            waiting = asyncio.create_task(opened.wait())
            try:
                await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
                yield self
            finally:
                waiting.cancel()
                server.stop()
                async with asyncio.timeout(SECONDS):
                    await running

    @asynccontextmanager
    async def connect(self, token: str, era: str = ERAS[0], **more: Any) -> AsyncGenerator[Client]:
        """Connect a client. `more`: callbacks of the client."""
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=era, **more) as client:
                yield client


def get_text(result: mcp_types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, mcp_types.TextContent)
    return block.text


def get_values(result: mcp_types.CallToolResult) -> dict[str, Any]:
    assert result.structured_content is not None
    return result.structured_content


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


@asynccontextmanager
async def _open_pipes(reads: int, writes: int) -> AsyncGenerator[Any]:
    """Yield the streams of a client at two pipes."""
    sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writer = MessageWriter(LineOutput(writes, lambda _: None))

    async def read() -> None:
        async with sender:
            async for line in LineInput(reads).read():
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                await sender.send(SessionMessage(message))

    reading = asyncio.create_task(read())
    try:
        yield receiver, writer
    finally:
        await writer.aclose()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class RawHost(LineClient):
    """A host that writes any bytes. `texts`: lines of the server that are no messages."""

    def __init__(self, reads: int, writes: int) -> None:
        super().__init__()
        self.texts: list[bytes] = []
        self._writes = writes
        self.start_task(self._read_lines(reads))

    async def _read_lines(self, reads: int) -> None:
        async for line in LineInput(reads).read():
            try:
                self.receive(line + b"\n")
            except ValueError:
                self.texts.append(line)

    async def write(self, *values: object) -> None:
        for value in values:
            data = value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"
            await asyncio.to_thread(_write_all, self._writes, data)

    async def shake_hands(self, **capabilities: Any) -> None:
        """Begin a connection of the older revision."""
        params = {**INITIALIZE["params"], "capabilities": capabilities}
        await self.write({**INITIALIZE, "params": params})
        await self.finish("init")
        await self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, id: object, tool: str, **arguments: Any) -> None:
        params = {"name": tool, "arguments": arguments}
        await self.write({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})

    async def finish(self, id: object) -> dict[str, Any]:
        """Return the answer to a request."""
        await self.wait_until(lambda: self.list_answers(id))
        (answer,) = self.list_answers(id)
        return answer

    def list_answers(self, id: object) -> list[dict[str, Any]]:
        return [each for each in self.lines if each.get("id") == id and "method" not in each]

    async def stop_reading(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def make_request(
    id: object, method: str, params: dict[str, Any], *, declares: bool = True
) -> dict[str, Any]:
    """Make a request of the newer revision, whose host declares tasks or not."""
    extensions: dict[str, Any] = {EXTENSION: {}} if declares else {}
    capabilities: dict[str, Any] = {"extensions": extensions, "elicitation": {"form": {}}}
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": ERAS[0],
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}


INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "init",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
"""The first request of the older revision."""


class TaskHost(RawHost):
    """A host of the newer revision that declares tasks."""

    _count = 0
    _seen = 0

    async def ask(self, method: str, *, declares: bool = True, **params: Any) -> dict[str, Any]:
        self._count += 1
        await self.write(make_request(self._count, method, params, declares=declares))
        return await self.finish(self._count)

    async def call_tool(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", declares=False, name=tool, arguments=arguments)

    async def start(self, prompt: str) -> dict[str, Any]:
        """Give a task; return its first state."""
        answer = await self.ask("tools/call", name="task", arguments={"prompt": prompt})
        return answer["result"]

    async def get(self, task: str) -> dict[str, Any]:
        return (await self.ask("tasks/get", taskId=task))["result"]

    async def wait_for_state(self, status: str) -> dict[str, Any]:
        """Return the next state that the server sends, once one has a status."""

        def list_states() -> list[tuple[int, dict[str, Any]]]:
            sent = [each.get("params", {}) for each in self.lines]
            states = [(n, each) for n, each in enumerate(sent) if each.get("status") == status]
            return [each for each in states if each[0] >= self._seen]

        await self.wait_until(list_states)
        number, state = list_states()[0]
        self._seen = number + 1
        return state

    async def wait(self, task: str, status: str) -> dict[str, Any]:
        while (state := await self.get(task))["status"] != status:
            assert state["status"] in ("working", "input_required"), state
            await asyncio.sleep(0.01)
        return state


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


MakeHost = Callable[..., McpHost]


@pytest.fixture
def make_host(tmp_path: Path) -> MakeHost:
    def make(script: Any, mode: str = "default", session: Any = None, **options: Any) -> McpHost:
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        return McpHost(folder, script, McpOptions(**options), mode, **(session or {}))

    return make


@pytest.fixture
def make_http_host(make_host: MakeHost, tmp_path: Path) -> Callable[..., HttpHost]:
    def make(*arguments: Any, **options: Any) -> HttpHost:
        return HttpHost(make_host(*arguments, **options), tmp_path / "home")

    return make
