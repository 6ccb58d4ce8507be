"""A partner that is stopped, or falls silent, at each of its messages does not hold what must end.

Partners are MCP servers (programs, and servers at an address), hooks and sandbox daemons.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from mudroom import Budget, Integrations, Permissions, Reason, ServerSpec, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.agents import Mode
from mudroom._platform.processes import list_processes
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from ..integrations.hook_helpers import make_spec
from ..integrations.mcp_servers.old_http_server import OldHttpServer, serve_old
from ..integrations.mcp_servers.servers import make_quick, read_log
from ..waiting import SECONDS, is_alive, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
HOOK = "echo $$ > hook; kill -STOP $$"
BEGINS = {
    "a connection": b"",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{",
}
"""What a server at an address sends before it falls silent at the first request."""
MESSAGES = {
    "server": ("initialize", "tools/list", "tools/call"),
    "address": (*BEGINS, "a call", "half an event"),
    "hook": ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"),
    "sandbox": ("a command",),
}
STOPS = ("cancel", "close", "limit")
CASES = [
    (partner, message, stop)
    for partner, messages in MESSAGES.items()
    for (place, message), (number, stop) in product(enumerate(messages), enumerate(STOPS))
    # The short form has a time limit, which must pass, once for each kind of partner.
    if os.environ.get("MUDROOM_LONG")
    or place % 2 == number
    or partner == "sandbox"
    or (message, stop) in (("SessionStart", "limit"), ("tools/list", "limit"))
    or (message, stop) == ("half an event", "limit")
]
REASONS = {"cancel": {Reason.CANCELLED}, "limit": {Reason.TIMEOUT, Reason.GOAL}}


class Partner(Struct):
    """What a run uses, and what hangs.

    Arguments:
        wait: waits until it hangs; returns the id of the process that must end, 0 for none.
    """

    options: dict[str, Any]
    steps: list[Answer]
    wait: Callable[[], Awaitable[int]]

    def answer(self, request: Request) -> Answer:
        return self.steps[request.turn] if request.turn < len(self.steps) else "done"


def use_server(folder: Path, message: str) -> Partner:
    # A long text, so that its tools are found and called by name.
    text = {"ADD_TEXT": "Add two numbers. " + "x" * 4_000}
    spec = make_quick(fault=f"stops at {message}", log=folder / "log", env=text)

    async def wait() -> int:
        await wait_until(lambda: message in read_log(folder / "log"))
        starts = [line for line in read_log(folder / "log") if line.startswith("start ")]
        return int(starts[0].split()[1])

    use = call("mcp_call", tool="mcp__quick__add", arguments={"a": 1, "b": 2})
    options = {"integrations": Integrations(mcp_servers=[spec])}
    return Partner(options, [call("mcp_find", query="add numbers"), use], wait)


def use_hook(folder: Path, event: str) -> Partner:
    path = folder / "hook"

    async def wait() -> int:
        await wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        return int(path.read_text())

    options = {"integrations": Integrations(hook_programs=[make_spec(event, HOOK)])}
    return Partner(options, [call("bash", command="true")], wait)


def use_sandbox(folder: Path) -> Partner:
    async def wait() -> int:
        await wait_until((folder / "ran").exists)
        daemons = [
            process
            for process in list_processes()
            if process.parent == os.getpid()
            and not process.is_dead
            and b"linux.daemon.main" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        ]
        pid = max(daemons, key=lambda process: process.started).pid
        os.kill(pid, signal.SIGSTOP)
        return pid

    return Partner({"sandbox": "auto"}, [call("bash", command="touch ran; sleep 60")], wait)


class Hang:
    """The moment at which a server has fallen silent."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.is_over = asyncio.Event()

    async def begin(self) -> None:
        self.has_begun.set()
        await self.is_over.wait()

    async def wait(self) -> int:
        await self.has_begun.wait()
        return 0


@asynccontextmanager
async def serve_silence(begin: bytes, hang: Hang) -> AsyncGenerator[ServerSpec]:
    """Run a server that falls silent at the first request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(begin)
        await hang.begin()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield ServerSpec(name="web", origin="test", scope="option", transport="http", url=url)
    finally:
        server.close()


@asynccontextmanager
async def serve_silent_call(has_event: bool, hang: Hang) -> AsyncGenerator[ServerSpec]:
    """Run a server whose call has no answer, or half an event."""

    class SilentServer(OldHttpServer):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            if request.method != "POST" or (await request.json())["method"] != "tools/call":
                return await super().answer(request)
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            if has_event:
                await response.prepare(request)
                await response.write(b'event: message\ndata: {"jsonrpc": ')
            await hang.begin()
            return response

    async with serve_old(make=SilentServer) as server:
        yield replace(server.make_spec(), always_load=True)


@asynccontextmanager
async def open_partner(folder: Path, kind: str, message: str) -> AsyncGenerator[Partner]:
    if kind != "address":
        uses = {"server": use_server, "hook": use_hook}
        yield uses[kind](folder, message) if kind in uses else use_sandbox(folder)
        return
    hang = Hang()
    at_start = message in BEGINS
    silent = (
        serve_silence(BEGINS[message], hang)
        if at_start
        else serve_silent_call(message == "half an event", hang)
    )
    steps: list[Answer] = [call("mcp_find", query="add") if at_start else call("mcp__web__add")]
    async with silent as spec:
        try:
            yield Partner({"integrations": Integrations(mcp_servers=[spec])}, steps, hang.wait)
        finally:
            hang.is_over.set()


def open_session(folder: Path, partner: Partner, journal: MemoryJournal, **options: Any) -> Session:
    options |= {"cwd": str(folder), "home": str(folder / "home")}
    settings: dict[str, Any] = {"sandbox": "off", "permissions": Permissions(mode=Mode.BYPASS)}
    model = ScriptedModel(partner.answer)
    return Session(model=model, journal=journal, **{**settings, **partner.options, **options})


@pytest.mark.parametrize(("kind", "message", "stop"), CASES)
async def test_a_partner_that_hangs_does_not_hold_the_end(
    tmp_path: Path, kind: str, message: str, stop: str
) -> None:
    journal = MemoryJournal()
    budget = Budget(seconds=3 if stop == "limit" else None)
    async with open_partner(tmp_path, kind, message) as partner:
        session = open_session(tmp_path, partner, journal, prompt_budget=budget)
        async with asyncio.timeout(SECONDS), session:
            running = asyncio.create_task(session.run("Work."))
            pid = await partner.wait()
            if stop == "cancel":
                session.runs.cancel()
            if stop != "close":
                assert (await running).reason in REASONS[stop]
        await asyncio.wait((running,), timeout=SECONDS)
        assert running.done()
        await wait_until(lambda: not pid or not is_alive(pid))
    assert find_violations(journal.events) == []
    if stop == "limit" and kind == "hook":
        await replay(journal.events)


@pytest.mark.parametrize("has_run", [True, False])
async def test_a_hook_that_hangs_at_the_end_does_not_hold_it(
    tmp_path: Path, *, has_run: bool
) -> None:
    partner = use_hook(tmp_path, "SessionEnd")
    partner.steps.clear()
    async with asyncio.timeout(SECONDS):
        async with open_session(tmp_path, partner, MemoryJournal()) as session:
            if has_run:
                assert (await session.run("Work.")).reason is Reason.GOAL
    pid = await partner.wait()
    await wait_until(lambda: not is_alive(pid))
