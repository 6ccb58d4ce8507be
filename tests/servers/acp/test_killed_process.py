"""`kill -9` and SIGTERM of `mudroom acp` while children work: a new process ends their prompt."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.signals import send_signal
from tests.waiting import SECONDS

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import SUBAGENTS, Line

CHILDREN = 3


class RunningServer:
    """A process `mudroom acp` and the messages that it has sent."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self.lines: list[Line] = []
        self._folder = folder
        self._number = 0

    def start(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        assert self.process.stdin
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        return self._number

    async def request(self, method: str, **params: Any) -> Line:
        """Send a request and return its result."""
        assert self.process.stdout
        number = self.start(method, **params)
        async with asyncio.timeout(SECONDS):
            while data := await self.process.stdout.readline():
                line = json.loads(data)
                self.lines.append(line)
                if line.get("id") == number and "method" not in line:
                    return line["result"]
        raise AssertionError(f"no answer to {method}")

    async def open(self, method: str, **params: Any) -> Line:
        """Open a session."""
        return await self.request(method, cwd=str(self._folder), mcpServers=[], **params)

    def list_states(self) -> dict[str, list[str]]:
        """Return the states of each child in their order."""
        states: dict[str, list[str]] = {}
        for line in self.lines:
            update = line.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == "subagent_update":
                states.setdefault(update["sessionId"], []).append(update["state"]["state"])
        return states

    def join_text(self, session: str) -> str:
        """Return the text of the model for a session."""
        return "".join(
            line["params"]["update"]["content"]["text"]
            for line in self.lines
            if line.get("method") == "session/update"
            and line["params"]["sessionId"] == session
            and line["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
        )


@asynccontextmanager
async def start_server(folder: Path, url: str) -> AsyncGenerator[RunningServer]:
    """Start a server whose client shows children as sessions."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "MUDROOM_HOME": str(folder / "home"),
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": url,
        "MUDROOM_MODEL": "anthropic:claude",
    }
    command = (sys.executable, "-m", "mudroom", "acp")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=environ, cwd=folder, limit=1 << 24
    )
    server = RunningServer(process, folder)
    try:
        await server.request("initialize", protocolVersion=1, clientCapabilities=SUBAGENTS)
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_prompt_of_a_stopped_process_ends_in_a_new_one(
    tmp_path: Path, number: signal.Signals
) -> None:
    working: set[str] = set()
    all_work = asyncio.Event()
    is_dead = False

    async def answer(request: ServerRequest) -> ServerAnswer:
        prompt = str(request.messages[0]["content"])
        if "Ask." in prompt:
            if len(request.messages) > 1:
                return "".join(str(each["content"]) for each in request.messages[2:])
            return [
                ToolCallBlock(f"t{number}", "task", {"prompt": f"Slow {number}."})
                for number in range(CHILDREN)
            ]
        if is_dead:
            return "Slow result."
        working.add(prompt)
        if len(working) == CHILDREN:
            all_work.set()
        await asyncio.Event().wait()
        return ""

    async with ModelServer(answer) as model:
        async with start_server(tmp_path, model.url) as server:
            session: str = (await server.open("session/new"))["sessionId"]
            prompt = [{"type": "text", "text": "Ask."}]
            server.start("session/prompt", sessionId=session, prompt=prompt)
            async with asyncio.timeout(SECONDS):
                await all_work.wait()
            send_signal(server.process, number)
            async with asyncio.timeout(SECONDS):
                await server.process.wait()
        is_dead = True
        async with start_server(tmp_path, model.url) as server:
            await server.open("session/load", sessionId=session)
            states = server.list_states()
            assert list(states.values()) == [["running", "unknown"]] * CHILDREN
            prompt = [{"type": "text", "text": "Go on."}]
            result = await server.request("session/prompt", sessionId=session, prompt=prompt)
            assert result["stopReason"] == "end_turn"
            ended = server.list_states()
            assert ended == {child: ["running", "unknown", "running", "idle"] for child in states}
            assert server.join_text(session).count("Slow result.") >= CHILDREN
            assert server.process.stdin
            server.process.stdin.close()
            async with asyncio.timeout(SECONDS):
                assert await server.process.wait() == 0
