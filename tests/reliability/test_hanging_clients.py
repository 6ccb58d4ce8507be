"""An editor, or the host of an agent SDK, that hangs at a message of mudroom holds no session."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mudroom import Reason, ToolCallBlock
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import RunFinished
from mudroom.testing.invariants import find_violations
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..integrations.mcp_servers.servers import QUICK_SERVER
from ..waiting import SECONDS, find_processes, wait_until
from .command_line import make_environ

Line = dict[str, Any]
BUSY_SECONDS = 8.0
"""Longest end on a busy machine; a quiet one takes less than 2 s."""
GREETING_SECONDS = 10.0
"""The time that a server in the host has for its greeting. The prompt begins after it."""
LIMIT_SECONDS = 3.0
TEXT = "A long text. " * 100_000
"""More than a pipe holds."""
SCHEMA: Line = {"type": "object", "properties": {}}
FORM = {"mode": "form", "message": "Which branch?", "requestedSchema": SCHEMA}
STOPS = ("cancel", "limit", "close", "SIGINT", "SIGTERM")
REASONS = {
    "cancel": {Reason.CANCELLED},
    "limit": {Reason.TIMEOUT, Reason.GOAL},  # mudroom itself may give up the question before
    "close": {Reason.CANCELLED, Reason.GOAL},  # a question is declined, and the model may end
    "SIGINT": {Reason.CANCELLED},
}


class Client:
    """A program that drives mudroom. It reads and answers nothing from one message on.

    Its `work_until` sends a prompt and hangs at a message, `cancel` cancels the prompt, and
    `is_end` says whether a line ends it.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def send(self, **message: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    async def read_until(self, matches: Callable[[Line], bool]) -> Line:
        """Return the first line that matches. Those before it are answered."""
        assert self.process.stdout
        async with asyncio.timeout(SECONDS):
            while data := await asyncio.to_thread(self.process.stdout.readline):
                line = json.loads(data)
                if matches(line):
                    return line
                self.answer(line)
        raise AssertionError("the output has ended")

    async def wait(self) -> int:
        """Return the exit code."""
        return await asyncio.to_thread(self.process.wait, SECONDS)

    async def wait_for_output(self) -> None:
        """Wait until something can be read, and leave it there."""
        stdout: Any = self.process.stdout
        assert await asyncio.to_thread(stdout.peek)

    def close(self) -> None:
        """Close both ends, as a program that dies."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()

    def answer(self, line: Line) -> None:
        """Answer a request that comes before the message."""
        raise NotImplementedError


class Editor(Client):
    """An editor. Its requests have the numbers 1 to 3; the last one is the prompt."""

    WORDS = ("acp", "--unsaved", "--trust")
    MESSAGES = (
        "answer to session/new",
        "session/update",
        "session/request_permission",
        "fs/read_text_file",
        "elicitation/create",
    )
    session = ""

    async def work_until(self, message: str) -> None:
        abilities: Line = {"fs": {"readTextFile": True}, "elicitation": {"form": {}}}
        self._request(1, "initialize", protocolVersion=1, clientCapabilities=abilities)
        await self.read_until(lambda line: line.get("id") == 1)
        self._request(2, "session/new", cwd=str(self.folder), mcpServers=[])
        if message == "answer to session/new":
            await self.wait_for_output()
            return
        opened = await self.read_until(lambda line: line.get("id") == 2 and "result" in line)
        self.session = opened["result"]["sessionId"]
        prompt = [{"type": "text", "text": "Work."}]
        self._request(3, "session/prompt", sessionId=self.session, prompt=prompt)
        await self.read_until(lambda line: line.get("method") == message)

    def _request(self, number: int, method: str, **params: Any) -> None:
        self.send(jsonrpc="2.0", id=number, method=method, params=params)

    def answer(self, line: Line) -> None:
        if line.get("method") == "session/request_permission":
            outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
            self.send(jsonrpc="2.0", id=line["id"], result=outcome)

    def cancel(self) -> None:
        self.send(jsonrpc="2.0", method="session/cancel", params={"sessionId": self.session})

    def is_end(self, line: Line) -> bool:
        return line.get("id") == 3 and "result" in line


class SdkHost(Client):
    """The host of an agent SDK, with a hook and an in-process server."""

    WORDS = (
        *("--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
        *("--permission-prompt-tool", "stdio", "--trust", "--include-partial-messages"),
    )
    MESSAGES = (
        "answer to initialize",
        "stream_event",
        "can_use_tool",
        "hook_callback",
        "mcp initialize",
        "mcp tools/list",
        "mcp tools/call",
        "elicitation",
    )
    hangs_at = ""

    async def work_until(self, message: str) -> None:
        self.hangs_at = message
        is_about_server = message.startswith("mcp ")
        hooks = {"PreToolUse": [{"matcher": "*", "hookCallbackIds": ["h"]}]}
        setup: Line = {"subtype": "initialize", "hooks": hooks}
        if is_about_server:
            setup["sdkMcpServers"] = ["own"]
        self.send(type="control_request", request_id="r1", request=setup)
        self.send(type="user", message={"role": "user", "content": "Work."}, session_id="")
        if message == "answer to initialize":
            await self.wait_for_output()
            return
        await self.read_until(self._is_hang)

    def _is_hang(self, line: Line) -> bool:
        if line["type"] != "control_request":
            return line["type"] == self.hangs_at
        request = line["request"]
        if request["subtype"] == "mcp_message":
            return self.hangs_at == f"mcp {request['message']['method']}"
        return request["subtype"] == self.hangs_at

    def answer(self, line: Line) -> None:
        if line["type"] != "control_request":
            return
        request = line["request"]
        response: Line = {}
        if request["subtype"] == "can_use_tool":
            response = {"behavior": "allow"}
        elif request["subtype"] == "mcp_message":
            response = {"mcp_response": self._answer_server(request["message"])}
        answer = {"subtype": "success", "request_id": line["request_id"], "response": response}
        self.send(type="control_response", response=answer)

    def _answer_server(self, message: Line) -> Line:
        tool = {"name": "get", "description": "Get.", "inputSchema": {"type": "object"}}
        info = {"name": "own", "version": "1"}
        results: dict[str, Line] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            },
            "tools/list": {"tools": [tool]},
        }
        result = results.get(message["method"], {})
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}

    def cancel(self) -> None:
        request = {"subtype": "interrupt"}
        self.send(type="control_request", request_id="r2", request=request)

    def is_end(self, line: Line) -> bool:
        return line["type"] == "result"


AnyClient = Editor | SdkHost
CLIENTS: dict[str, type[AnyClient]] = {"editor": Editor, "SDK host": SdkHost}
ELICITATIONS = ("elicitation/create", "elicitation")
GREETINGS = ("mcp initialize", "mcp tools/list")
ASKS = ("session/request_permission", "can_use_tool")


CASES = [
    (kind, message, stop)
    for kind, client in CLIENTS.items()
    for (place, message), (number, stop) in product(enumerate(client.MESSAGES), enumerate(STOPS))
    # A limit, and the greeting of a server, take time that must pass; once in the short form.
    if (
        os.environ.get("MUDROOM_LONG")
        or number == (2 if message in GREETINGS else (place + 2) % len(STOPS))
        or (message, stop) == ("session/update", "limit")
    )
    # The time of a question to the user does not count.
    and not (stop == "limit" and message in (*ASKS, *ELICITATIONS))
    # No prompt works before there is a session.
    and not (stop in ("cancel", "limit") and message == "answer to session/new")
]


def make_answer(message: str, mark: str) -> Callable[[ServerRequest], ServerAnswer]:
    """Return the model that leads a client to a message."""

    def answer(request: ServerRequest) -> ServerAnswer:
        if message in ELICITATIONS and request.turn < 2:
            find = ToolCallBlock("f", "mcp_find", {"query": "ask the user"})
            arguments: Line = {"tool": "mcp__quick__ask", "arguments": {}}
            return (ToolCallBlock("c", "mcp_call", arguments) if request.turn else find,)
        if request.turn:
            return "done"
        match message:
            case "fs/read_text_file":
                return (ToolCallBlock("c", "read", {"file_path": "file"}),)
            case _ if message in ASKS:
                return (ToolCallBlock("c", "write", {"file_path": "new", "content": "x"}),)
            case "mcp tools/call":
                return (ToolCallBlock("c", "mcp__own__get", {}),)
            case _:
                call = ToolCallBlock("c", "bash", {"command": f": {mark}; sleep 60"})
                return (TEXT, call) if message in ("session/update", "stream_event") else (call,)

    return answer


@contextmanager
def start_client(
    kind: str, message: str, stop: str, folder: Path, url: str
) -> Generator[AnyClient]:
    """Start mudroom with a client that has not sent anything."""
    work = folder / "work"
    work.mkdir()
    (work / "file").write_text("x")
    if message in ELICITATIONS:
        environ = {"ASK": json.dumps(FORM)}
        server = {"command": sys.executable, "args": [str(QUICK_SERVER)], "env": environ}
        (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"quick": server}}))
    client = CLIENTS[kind]
    mode = "default" if message in ASKS else "bypassPermissions"
    words = (*client.WORDS, "--permission-mode", mode, "--model", "anthropic:claude-sonnet-4-5")
    environ = make_environ(folder, url)
    if stop == "limit":
        environ["MUDROOM_MAX_MINUTES"] = str(LIMIT_SECONDS / 60)
    with subprocess.Popen(
        [sys.executable, "-m", "mudroom", *words],
        cwd=work,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield client(process, work)
        finally:
            if process.poll() is None:
                process.kill()


async def stop_client(client: AnyClient, message: str, stop: str, home: Path) -> None:
    """Stop the work of a client that hangs, and wait for its end."""
    if stop == "close":
        client.close()
        assert await client.wait() == 0
    elif stop.startswith("SIG"):
        number = signal.Signals[stop]
        client.process.send_signal(number)
        assert await client.wait() == 128 + number
    else:
        if stop == "cancel":
            client.cancel()
        else:
            await wait_until(lambda: list_reasons(home))
        await client.read_until(client.is_end)


def list_reasons(home: Path) -> set[Reason]:
    """Return why the prompt has ended, nothing while it works."""
    files = list(home.glob("sessions/*.db"))
    if not files:
        return set()
    events = open_reader(files[0]).read()
    return {event.report.reason for event in events if isinstance(event, RunFinished)}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("kind", "message", "stop"), CASES)
async def test_s8_a_client_that_hangs_does_not_hold_the_end(
    tmp_path: Path, kind: str, message: str, stop: str
) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    home = tmp_path / "home"
    async with ModelServer(make_answer(message, mark)) as server:
        with start_client(kind, message, stop, tmp_path, server.url) as client:
            await client.work_until(message)
            begin = time.monotonic()
            await stop_client(client, message, stop, home)
            seconds = time.monotonic() - begin
    bound = BUSY_SECONDS + (LIMIT_SECONDS if stop == "limit" else 0)
    if message in GREETINGS and stop in ("cancel", "limit"):
        bound += GREETING_SECONDS
    assert seconds < bound
    await wait_until(lambda: not find_processes(mark))
    if stop in REASONS and (reasons := list_reasons(home)):
        assert reasons <= REASONS[stop]
    if stop == "SIGTERM":
        return  # the run is paused, so it has no end
    for file in home.glob("sessions/*.db"):
        assert find_violations(open_reader(file).read(), timed=False) == []
