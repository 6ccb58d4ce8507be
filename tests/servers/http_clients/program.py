"""`mudroom serve` as a program of its own, and checks of what its streams sent."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from tests.waiting import SECONDS

from mudroom_postgres.blocking import BlockingConnection
from mudroom_serve.state.server_state import ServerState
from mudroom_serve.state.state_file import StateFile
from mudroom_serve.state.state_tables import StateTables
from mudroom_serve.state.tokens import TokenRecords

from .conftest import Client, Line, is_idle


@asynccontextmanager
async def start_server(
    folder: Path, model_url: str, *flags: str, port: int = 0, home: str = "home"
) -> AsyncGenerator[tuple[Process, str]]:
    """Start `mudroom serve`; yield the process and its address.

    Arguments:
        home: name of the state folder in `folder`; another machine has another one.
    """
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "MUDROOM_HOME": str(folder / home),
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": model_url,
        "MUDROOM_MODEL": "anthropic:claude",
    }
    command = (sys.executable, "-m", "mudroom", "serve", "--listen", f"127.0.0.1:{port}", *flags)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environ, cwd=folder)
    assert process.stdout
    try:
        async with asyncio.timeout(SECONDS):
            line = await process.stdout.readline()
        yield process, line.decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_fleet(folder: Path, *words: str) -> str:
    """Run `mudroom fleet` and return its output."""
    environ = {"PATH": os.environ["PATH"], "MUDROOM_HOME": str(folder / "home")}
    command = (sys.executable, "-m", "mudroom", "fleet", *words)
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def list_workers(folder: Path) -> list[dict[str, Any]]:
    """Return the worker processes that `mudroom fleet status` shows."""
    statuses = json.loads(await run_fleet(folder, "status", "--json"))
    return [worker for status in statuses for worker in status["workers"]]


def make_token(folder: Path, owner: str = "ada", store: str = "") -> str:
    state: ServerState = StateFile(str(folder / "home"))
    if store:
        state.close()
        state = StateTables(BlockingConnection(store))
    try:
        return TokenRecords(state).add(owner)[1]
    finally:
        state.close()


async def list_cursors(client: Client, session: str) -> list[tuple[str, Any]]:
    items = await client.read_pages(f"/v1/sessions/{session}/events")
    return [(each["cursor"], each["event"]) for each in items]


def check_whole(messages: list[Line], recorded: list[tuple[str, Any]]) -> None:
    """Check that a client has got each recorded event exactly once, in order."""
    got = [(each["id"], each["data"]) for each in messages]
    assert got == recorded[: len(got)]
    assert len(got) >= len(recorded) - 1  # the session may have been closed since


async def read_until_cut(client: Client, session: str, events: list[Line]) -> None:
    """Add the recorded events of a stream to a list until its server dies."""
    try:
        async with client.open_stream(session) as stream:
            async for message in stream:
                if "id" in message:
                    events.append(message)
    except aiohttp.ClientError:
        pass


async def continue_stream(client: Client, session: str, last_id: str) -> list[Line]:
    """Return the rest of the recorded events, up to the end of all prompts."""
    messages: list[Line] = []
    async with asyncio.timeout(SECONDS), client.open_stream(session, last_id=last_id) as stream:
        async for message in stream:
            messages.append(message)
            if is_idle(message):
                return [each for each in messages if "id" in each]
    raise AssertionError("the stream has ended")
