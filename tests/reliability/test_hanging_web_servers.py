"""An MCP server at an address that falls silent, at each of its messages, holds no session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from mudroom import Budget, Integrations, Permissions, Reason, ServerSpec, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.agents import Mode
from mudroom.testing.invariants import find_violations

from ..integrations.mcp_servers.old_http_server import OldHttpServer, serve_old
from ..waiting import SECONDS

HANGS = ("a connection", "half a header", "half an answer", "a call", "half an event")
STOPS = ("cancel", "limit", "close")
CASES = [
    (hang, stop)
    for place, hang in enumerate(HANGS)
    for number, stop in enumerate(STOPS)
    if os.environ.get("MUDROOM_LONG") or place % len(STOPS) == number
]
BEGINS = {
    "a connection": b"",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{",
}
"""What a server sends before it falls silent at the first request."""


class Hang:
    """The moment at which a server has fallen silent."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.is_over = asyncio.Event()

    async def wait(self) -> None:
        self.has_begun.set()
        await self.is_over.wait()


@asynccontextmanager
async def serve_silence(begin: bytes, hang: Hang) -> AsyncGenerator[ServerSpec]:
    """Run a server that falls silent at the first request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(begin)
        await hang.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        yield ServerSpec(name="web", origin="test", scope="option", transport="http", url=url)
    finally:
        server.close()


@asynccontextmanager
async def serve_silent_call(hang: Hang, *, has_event: bool) -> AsyncGenerator[ServerSpec]:
    """Run a server whose call has no answer, or half an event."""

    class SilentServer(OldHttpServer):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            if request.method != "POST" or (await request.json())["method"] != "tools/call":
                return await super().answer(request)
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            if has_event:
                await response.prepare(request)
                await response.write(b'event: message\ndata: {"jsonrpc": ')
            await hang.wait()
            return response

    async with serve_old(make=SilentServer) as server:
        yield replace(server.make_spec(), always_load=True)


@pytest.mark.parametrize(("hang_at", "stop"), CASES)
async def test_a_silent_address_does_not_hold_the_end(
    tmp_path: Path, hang_at: str, stop: str
) -> None:
    hang, journal = Hang(), MemoryJournal()
    at_start = hang_at in BEGINS

    def answer(request: Request) -> Answer:
        if request.turn:
            return "done"
        return call("mcp_find", query="add") if at_start else call("mcp__web__add")

    async with (
        serve_silence(BEGINS[hang_at], hang)
        if at_start
        else serve_silent_call(hang, has_event=hang_at == "half an event") as spec
    ):
        session = Session(
            model=ScriptedModel(answer),
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            journal=journal,
            sandbox="off",
            permissions=Permissions(mode=Mode.BYPASS),
            integrations=Integrations(mcp_servers=[spec]),
            prompt_budget=Budget(seconds=3 if stop == "limit" else None),
        )
        try:
            async with asyncio.timeout(SECONDS), session:
                running = asyncio.create_task(session.run("Work."))
                await hang.has_begun.wait()
                if stop == "cancel":
                    session.runs.cancel()
                if stop != "close":
                    reasons = {"cancel": {Reason.CANCELLED}, "limit": {Reason.TIMEOUT, Reason.GOAL}}
                    assert (await running).reason in reasons[stop]
            await asyncio.wait((running,), timeout=SECONDS)
            assert running.done()
        finally:
            hang.is_over.set()
    assert find_violations(journal.events) == []
