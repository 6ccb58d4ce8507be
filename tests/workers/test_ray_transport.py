"""Connections to worker processes elsewhere: lost actors and Ray processes, failed starts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, ServerSpec, Session, UsageError
from mudroom._platform.orphan_cleanup import remove_orphans
from mudroom.testing.clock import run_virtual
from mudroom_fleet.actor_link import UNLOADABLE
from mudroom_fleet.messages import (
    ActorLost,
    ActorReady,
    AskLease,
    ClosePart,
    Hello,
    LeaseState,
    OpenPart,
    PartBytes,
    RayConfig,
    ToRay,
)
from mudroom_fleet.ray_process import _create_token
from mudroom_fleet.ray_transport import RayConnection, RayTransport

from ..waiting import block_until, wait_until

HELLO = Hello(pid=7, host="far", node="n1", python="3.11.7", code="other")


class ScriptedTransport(RayTransport):
    """Transport whose Ray process does nothing; it keeps the messages to it."""

    def __init__(self) -> None:
        super().__init__("program:serve", {})
        self.sent: list[ToRay] = []

    async def open_actor(self, connection: RayConnection) -> None:
        self._connections[connection.number] = connection
        self.send(OpenPart(connection.number))

    def send(self, message: ToRay) -> None:
        self.sent.append(message)


def list_ray_processes() -> list[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    children = {pid for task in tasks for pid in task.read_text().split()}
    return [
        int(pid)
        for pid in children
        if b"mudroom_fleet.ray_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_lost_actor_has_stopped_after_its_lease_when_ray_ends_too(
    tmp_path: Path,
) -> None:
    async def run() -> float:
        connection = ScriptedTransport().connect()
        connection.handle(ActorLost(connection.number, "no answer"))
        connection.end("the Ray process has ended")
        assert connection.loss == "no answer"
        assert await connection.receive() == b""
        await connection.wait_until_stopped()
        return asyncio.get_running_loop().time()

    assert run_virtual(run()) >= 8.5


def test_an_actor_whose_bytes_cannot_be_used_is_ended_and_the_others_go_on() -> None:
    async def run() -> None:
        transport = ScriptedTransport()
        connections = [transport.connect(), transport.connect()]
        for connection in connections:
            await transport.open_actor(connection)
        transport._pass_on(PartBytes(1, b"broken"))
        transport._pass_on(PartBytes(2, b"sound"))
        assert await connections[0].receive() == b"broken"
        await connections[0].wait_until_stopped()
        assert transport.sent[-1] == ClosePart(1)
        assert await connections[0].receive() == b""
        assert await connections[1].receive() == b"sound"

    run_virtual(run())


async def test_a_cancelled_start_ends_its_actor(tmp_path: Path) -> None:
    transport = ScriptedTransport()
    connection = transport.connect()
    opening = asyncio.create_task(connection.open())
    await wait_until(lambda: bool(transport.sent))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert transport.sent[-1] == ClosePart(1)


async def test_the_lease_of_an_actor_is_that_of_its_ray_process(tmp_path: Path) -> None:
    transport = ScriptedTransport()
    connection = transport.connect()
    asking = asyncio.create_task(connection.read_lease())
    await wait_until(lambda: bool(transport.sent))
    assert transport.sent == [AskLease(1)]
    connection.handle(LeaseState(1, 6.5))
    assert await asking == 6.5


async def test_nothing_is_sent_to_an_actor_after_the_close_of_its_connection() -> None:
    transport = ScriptedTransport()
    connection = transport.connect()
    connection.send(b"before")
    await connection.close()
    connection.send(b"after")
    assert transport.sent == [PartBytes(1, b"before"), ClosePart(1)]


@pytest.mark.parametrize(
    ("loss", "remedy"),
    [
        ("its node has died", "`ray status`"),
        (f"{UNLOADABLE}: No module named 'mudroom'", "the same version of mudroom"),
    ],
)
async def test_the_remedy_for_a_failed_start_fits_its_cause(
    loss: str, remedy: str, tmp_path: Path
) -> None:
    transport = ScriptedTransport()
    connection = transport.connect()
    opening = asyncio.create_task(connection.open())
    await wait_until(lambda: bool(transport.sent))
    connection.handle(ActorLost(1, loss))
    with pytest.raises(UsageError) as raised:
        await opening
    assert remedy in raised.value.remedy


async def test_a_node_that_is_refused_says_so_to_later_runs_too(tmp_path: Path) -> None:
    transport = ScriptedTransport()
    connection = transport.connect()
    opening = asyncio.create_task(connection.open())
    await wait_until(lambda: bool(transport.sent))
    connection.handle(ActorReady(1, HELLO))
    with pytest.raises(UsageError, match="the node far has mudroom other"):
        await opening
    assert "the node far has mudroom other" in connection.loss
    assert transport.sent[-1] == ClosePart(1)


async def test_a_cancelled_connection_to_the_cluster_leaves_no_ray_process(tmp_path: Path) -> None:
    transport = RayTransport("program:serve", {"RAY_ADDRESS": "127.0.0.1:1"})
    starting = asyncio.create_task(transport.start())
    await wait_until(lambda: bool(list_ray_processes()))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not list_ray_processes()
    await transport.close()


def test_processes_of_a_cluster_whose_session_was_killed_are_ended(tmp_path: Path) -> None:
    folder = tmp_path / f"mudroom-1-{0:012x}"
    config = RayConfig(address="", folder=str(folder), program="", lease_seconds=8.0)
    environ = RayTransport("program:serve", {})._list_variables(config)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, env=environ) as process:
        block_until(lambda: b"time.sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
        folder.mkdir()
        remove_orphans(str(tmp_path))
        assert process.wait(30) < 0


@pytest.mark.parametrize(
    "options",
    [
        {"env": {"MODE": "fast"}},
        {"transport": "http", "url": "https://example.org", "headers": {"X-Key": "1"}},
        {"transport": "http", "url": "https://example.org", "oauth": {"client_secret": "1"}},
        {"args": ("--token", "a-secret-of-the-user")},
    ],
    ids=["variables", "headers", "client secret", "argument"],
)
async def test_secrets_of_a_server_of_one_agent_are_not_sent(
    options: dict[str, Any], tmp_path: Path
) -> None:
    server = ServerSpec(name="own", origin="test", scope="agent", agent="reader", **options)
    with pytest.raises(UsageError, match="the MCP server own of the agent reader has variables"):
        async with Session(
            model="offline",
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            environ={"MY_TOKEN": "a-secret-of-the-user"},
            integrations=Integrations(mcp_servers=[server]),
            worker="ray:1",
        ):
            pass


def test_a_token_that_another_session_has_just_made_stays(tmp_path: Path) -> None:
    path = tmp_path / ".ray" / "auth_token"
    _create_token(path)
    token = path.read_text()
    _create_token(path)
    assert path.read_text() == token
    assert len(token) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["auth_token"]
