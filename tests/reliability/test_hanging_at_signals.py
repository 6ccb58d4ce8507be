"""S8 at the command line: Ctrl-C and SIGTERM end a session whose partner hangs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mudroom import ToolCallBlock
from mudroom._platform.processes import list_children
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..integrations.mcp_servers.servers import QUICK_SERVER, read_log
from ..waiting import SECONDS, is_alive, wait_until
from .test_signals import make_environ

BUSY_SECONDS = 6.0
"""Longest end on a busy machine; a quiet one takes less than 2 s."""
PARTNERS = ("server that greets", "server that works", "hook", "sandbox")
CASES = [
    (partner, stop)
    for place, partner in enumerate(PARTNERS)
    for number, stop in enumerate(("SIGINT", "SIGTERM"))
    if os.environ.get("MUDROOM_LONG") or place % 2 == number
]


class Project:
    """A folder whose files name a partner that hangs, and a script that uses it."""

    def __init__(self, folder: Path, partner: str) -> None:
        self.folder = folder
        self.partner = partner
        folder.mkdir()
        if partner.startswith("server"):
            message = "initialize" if partner.endswith("greets") else "tools/call"
            server = {
                "command": sys.executable,
                "args": [str(QUICK_SERVER), f"stops at {message}"],
                # A long text, so that its tools are found and called by name.
                "env": {"SERVER_LOG": str(folder / "log"), "ADD_TEXT": "Add. " + "x" * 4_000},
            }
            self.last_line = message
            (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"quick": server}}))
        elif partner == "hook":
            hook = {"type": "command", "command": "echo $$ > pid; kill -STOP $$"}
            settings = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [hook]}]}}
            (folder / ".claude").mkdir()
            (folder / ".claude" / "settings.json").write_text(json.dumps(settings))

    def answer(self, request: ServerRequest) -> ServerAnswer:
        if not self.partner.startswith("server"):
            command = "echo $$ > pid; sleep 60"
            return (ToolCallBlock("b", "bash", {"command": command}),)
        if not request.turn:
            return (ToolCallBlock("f", "mcp_find", {"query": "add numbers"}),)
        arguments = {"tool": "mcp__quick__add", "arguments": {"a": 1, "b": 2}}
        return (ToolCallBlock("c", "mcp_call", arguments),)

    async def wait_for_hang(self, session: int) -> list[int]:
        """Wait until the partner is stopped. Return the ids of what must end with the session."""
        if self.partner.startswith("server"):
            log = self.folder / "log"
            await wait_until(lambda: self.last_line in read_log(log))
            return [int(line.split()[1]) for line in read_log(log) if line.startswith("start ")]
        file = self.folder / "pid"
        await wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
        if self.partner == "hook":
            return [int(file.read_text())]
        daemons = [
            pid
            for pid in list_children(session)
            if b"linux.daemon.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        if not daemons:
            pytest.skip("no sandbox on this machine")
        for pid in daemons:
            os.kill(pid, signal.SIGSTOP)
        return daemons


@asynccontextmanager
async def start_prompt(
    folder: Path, answer: Callable[[ServerRequest], ServerAnswer], *flags: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a prompt in the folder `work` with a scripted model."""
    pipe = asyncio.subprocess.PIPE
    async with ModelServer(answer) as server:
        words = [sys.executable, "-m", "mudroom", "--model", "anthropic:claude-sonnet-4-5"]
        words += ["--permission-mode", "bypassPermissions", *flags, "-p", "Work."]
        environ = make_environ(folder, server.url)
        process = await asyncio.create_subprocess_exec(
            *words, cwd=folder / "work", env=environ, stdout=pipe, stderr=pipe
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("partner", "stop"), CASES)
async def test_s8_a_signal_ends_a_session_whose_partner_hangs(
    tmp_path: Path, partner: str, stop: str
) -> None:
    project = Project(tmp_path / "work", partner)
    flags = ("--trust", "--sandbox", "auto" if partner == "sandbox" else "off")
    async with start_prompt(tmp_path, project.answer, *flags) as process:
        pids = await project.wait_for_hang(process.pid)
        begin = time.monotonic()
        process.send_signal(signal.Signals[stop])
        _, err = await asyncio.wait_for(process.communicate(), SECONDS)
        assert time.monotonic() - begin < BUSY_SECONDS
    assert process.returncode == 128 + signal.Signals[stop]
    assert b"Traceback" not in err
    await wait_until(lambda: not any(map(is_alive, pids)))
