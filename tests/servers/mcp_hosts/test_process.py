"""The command `mudroom mcp serve`, started by hosts: its output, its end, and its record."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from tests.waiting import SECONDS, is_alive, wait_until

from mudroom._adapters.journals.sessions import open_store, read_events
from mudroom._core.messages import ToolCallBlock
from mudroom.events import RunFinished
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer
from mudroom_serve.state.state_file import StateFile
from mudroom_serve.state.tokens import TokenRecords

from .conftest import TaskHost

END_SECONDS = 3.0
"""Longest time from the end of the input to the end of the server."""

PRINTING = """
import os, subprocess, sys, warnings
from mudroom_hosts.mcp.server import claim_standard_streams
with claim_standard_streams() as pipes:
    print("print")
    sys.stdout.flush()
    os.write(1, b"descriptor")
    subprocess.run(["sh", "-c", "echo child; cat"], check=True)
    warnings.warn("warning")
    os.write(pipes.output, b"message\\n")
    assert os.read(pipes.input, 10) == b"input\\n"
print("after")
"""


def test_nothing_but_messages_reaches_stdout() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTING], input=b"input\n", capture_output=True, check=True
    )
    assert done.stdout == b"message\nafter\n"
    for text in (b"print", b"descriptor", b"child", b"warning"):
        assert text in done.stderr


class Process:
    """A running server and the host at its pipes."""

    def __init__(
        self, process: subprocess.Popen[bytes], home: Path, environ: Mapping[str, str]
    ) -> None:
        assert process.stdin and process.stdout
        self.process = process
        self.environ = dict(environ)
        self.home = home
        self.raw = TaskHost(process.stdout.fileno(), process.stdin.fileno())

    async def wait(self) -> int:
        return await asyncio.to_thread(self.process.wait, SECONDS)

    async def read_events(self) -> list[Any]:
        store = open_store(str(self.home))
        (info,) = await store.list()
        return list(await read_events(store, info.id))


async def run_command(request: ServerRequest) -> ServerAnswer:
    """Run the command of a prompt `RUN ...`; answer any other prompt."""
    prompt = str(request.messages[-1]["content"])
    if "RUN " not in prompt:
        return "Done."
    command = prompt.split("RUN ")[1].split("'")[0]
    return [ToolCallBlock("c1", "bash", {"command": command})]


@asynccontextmanager
async def start_with_model(folder: Path, *, shakes_hands: bool = True) -> AsyncGenerator[Process]:
    """Start a server whose model runs the commands of prompts."""
    arguments = ("-m", "anthropic:claude", "--sandbox", "off")
    async with ModelServer(run_command) as model:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": model.url}
        mode = "bypassPermissions"
        async with start(folder, *arguments, "--permission-mode", mode, **environ) as server:
            if shakes_hands:
                await server.raw.shake_hands()
            yield server


@asynccontextmanager
async def start(folder: Path, *arguments: str, **environ: str) -> AsyncGenerator[Process]:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    home = folder / "home"
    process = subprocess.Popen(  # noqa: ASYNC220  (its pipes are read by threads)
        [sys.executable, "-m", "mudroom", "mcp", "serve", "-m", "offline", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project,
        env={**os.environ, "MUDROOM_HOME": str(home), "HOME": str(folder), **environ},
    )
    server = Process(process, home, environ)
    try:
        yield server
    finally:
        process.kill()
        process.wait()
        await server.raw.stop_reading()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe
            pipe.close()


async def test_the_end_of_the_input_ends_the_server_and_its_commands(tmp_path: Path) -> None:
    async with start_with_model(tmp_path) as server:
        await server.raw.call(1, "task", prompt="RUN echo $$ > pid; sleep 600")
        pid_file = tmp_path / "project" / "pid"
        await wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
        pid = int(pid_file.read_text())
        loop = asyncio.get_running_loop()
        assert server.process.stdin
        started = loop.time()
        server.process.stdin.close()
        assert await server.wait() == 0
        assert loop.time() - started < END_SECONDS + SECONDS / 4  # a busy machine
        await wait_until(lambda: not is_alive(pid))
        events = await server.read_events()
    reasons = [event.report.reason for event in events if isinstance(event, RunFinished)]
    assert reasons == ["CANCELLED"]


async def test_options_and_errors_of_the_command(tmp_path: Path) -> None:
    limits = ("--max-turns", "1", "--parallel", "2", "--total-tokens", "100000")
    async with start(tmp_path, *limits) as server:
        await server.raw.shake_hands()
        await server.raw.call(1, "task", prompt="How many files are there?")
        result = (await server.raw.finish(1))["result"]
        assert result["structuredContent"]["reason"] == "MAX_TURNS"
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait() == 128 + signal.SIGTERM
    async with start(tmp_path, MUDROOM_MCP_NESTING="deep") as server:
        assert await server.wait() == 2
        assert server.process.stderr
        assert b"'deep' is no number ($MUDROOM_MCP_NESTING)" in server.process.stderr.read()


async def test_the_command_serves_over_http_until_a_signal(tmp_path: Path) -> None:
    async with start(tmp_path, "--listen", "127.0.0.1:0") as server:
        assert server.process.stderr
        line = await asyncio.to_thread(server.process.stderr.readline)
        while b"no host can use it yet" not in line:
            assert line
            line = await asyncio.to_thread(server.process.stderr.readline)
        await wait_until(lambda: server.raw.texts)
        url = server.raw.texts[0].decode().strip()
        with closing(StateFile(str(server.home))) as state:
            token = TokenRecords(state).add("alice")[1]
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
            async with Client(streamable_http_client(url, http_client=http)) as client:
                result = await client.call_tool("task", {"prompt": "How many files?"})
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait() == 128 + signal.SIGTERM
    assert url.endswith("/mcp")
    assert not result.is_error


def test_flags_of_http_need_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    from mudroom._cli.main import run

    assert run(["mcp", "serve", "--host-name", "box"]) == 2
    assert "these flags are for HTTP. Add --listen HOST:PORT." in capsys.readouterr().err


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mudroom._cli.main import run
    from mudroom_hosts.mcp import server

    def find_nothing(_: str) -> None:
        return None

    monkeypatch.setattr(server, "find_spec", find_nothing)
    assert run(["mcp", "serve"]) == 2
    assert "the package mcp is not installed. Run: pip install 'mudroom[mcp]'" in (
        capsys.readouterr().err
    )
