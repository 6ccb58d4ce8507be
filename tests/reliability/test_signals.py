"""S8 at the command line: after Ctrl-C or SIGTERM no process remains, the session continues.

So it is while work is under way, and while a partner of the session hangs: an MCP server, a hook, a
sandbox daemon, a worker process, or the database.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from mudroom import ToolCallBlock
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._cli.output.signals import END_SECONDS
from mudroom._core.events import ToolCallStarted
from mudroom._platform.processes import list_children, list_processes
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..integrations.mcp_servers.servers import QUICK_SERVER, read_log
from ..journals.postgres.proxy import CuttingProxy
from ..postgres_server import PostgresServer
from ..waiting import SECONDS, find_processes, is_alive, wait_until
from .command_line import MODEL, PROGRAM, run, start_prompt
from .conftest import CheckRecord
from .killed import LONG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
BUSY_SECONDS = 6.0
"""Longest end on a busy machine; a quiet one takes less than 2 s."""
STOPS = ("SIGINT", "SIGTERM")


def read_last_record(folder: Path) -> Path:
    return next((folder / "home").glob("sessions/*.db"))


async def stop(process: asyncio.subprocess.Process, name: str) -> tuple[bytes, float]:
    """Send a signal; return what the program says, and the seconds until it ends."""
    begin = time.monotonic()
    process.send_signal(signal.Signals[name])
    _, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert b"Traceback" not in err
    assert process.returncode == 128 + signal.Signals[name]
    return err, time.monotonic() - begin


@pytest.mark.parametrize("seed", range(50 if LONG else 4))
async def test_s8_ctrl_c_and_sigterm_leave_nothing_running(
    tmp_path: Path, seed: int, check_record: CheckRecord
) -> None:
    chance, mark = random.Random(seed), f"mark-{os.getpid()}-{seed}-"
    command = f": {mark}; (setsid sleep 61 &); echo x >> effects.txt; sleep 60"
    started, stopped = asyncio.Event(), asyncio.Event()

    def answer(request: ServerRequest) -> ServerAnswer:
        if stopped.is_set():
            return "I continue."
        started.set()
        if "task" in request.tools and not request.turn:
            return tuple(ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(3))
        return (ToolCallBlock("b", "bash", {"command": command}),)

    async with start_prompt(tmp_path, answer) as process:
        await started.wait()
        await asyncio.sleep(chance.random() * 0.5)
        await stop(process, STOPS[seed % 2])
    stopped.set()
    await wait_until(lambda: not find_processes(mark))
    async with ModelServer(answer) as server:
        again = await run(tmp_path, server.url, *MODEL, "-p", "Again", "-c")
    assert again[:2] == (0, "I continue.\n"), again
    await check_record(open_reader(read_last_record(tmp_path)).read())


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


@pytest.mark.parametrize(
    ("partner", "name"),
    [
        (partner, name)
        for place, partner in enumerate(
            ("server that greets", "server that works", "hook", "sandbox")
        )
        for number, name in enumerate(STOPS)
        if LONG or place % 2 == number
    ],
)
async def test_s8_a_signal_ends_a_session_whose_partner_hangs(
    tmp_path: Path, partner: str, name: str
) -> None:
    project = Project(tmp_path / "work", partner)
    flags = ("--trust", "--sandbox", "auto" if partner == "sandbox" else "off")
    async with start_prompt(tmp_path, project.answer, *flags) as process:
        pids = await project.wait_for_hang(process.pid)
        _, seconds = await stop(process, name)
    assert seconds < BUSY_SECONDS
    await wait_until(lambda: not any(map(is_alive, pids)))


def find_workers(parent: int) -> list[int]:
    """Return the worker processes that a session has started."""
    return [
        process.pid
        for process in list_processes()
        if process.parent == parent
        and b"mudroom._session.worker_process" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("name", [*STOPS, "time limit"])
async def test_s8_a_session_ends_although_its_worker_processes_are_stopped(
    tmp_path: Path, name: str, check_record: CheckRecord
) -> None:
    has_begun, is_stopped = asyncio.Event(), asyncio.Event()

    async def answer(request: ServerRequest) -> ServerAnswer:
        is_parent = "task" in request.tools
        if is_parent and not request.turn:
            return tuple(ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(2))
        if is_parent:
            return "The end."
        has_begun.set()
        await is_stopped.wait()
        return "done"

    flags = ["--worker", "process:2", "--sandbox", "off"]
    flags += ["--max-minutes", "0.07"] if name == "time limit" else []
    async with start_prompt(tmp_path, answer, *flags) as process:
        await has_begun.wait()
        workers = find_workers(process.pid)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        is_stopped.set()
        if name == "time limit":
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
            assert (process.returncode, out) == (0, b"The end.\n")
            assert b"Time limit" in err and b"Traceback" not in err
        else:
            err, seconds = await stop(process, name)
            assert seconds < BUSY_SECONDS  # less than until silence alone ends the worker
    assert workers
    await wait_until(lambda: not any(map(is_alive, workers)))
    if name == "SIGTERM":
        assert b"the run is paused" in err  # so its runs have no end
        return
    await check_record(open_reader(read_last_record(tmp_path)).read())


PATIENCE = END_SECONDS if LONG else 2.0
"""Seconds that a session has after a signal: one whose database hangs takes them all."""
IMPATIENT = f"""
from mudroom._cli.main import main
from mudroom._cli.output import signals
signals.END_SECONDS = {PATIENCE}
main()
"""


@asynccontextmanager
async def open_proxy(server: PostgresServer) -> AsyncGenerator[tuple[CuttingProxy, list[str]]]:
    """Return a proxy before a new database, and the flags that name it."""
    name = server.create_database().rpartition("/")[2]
    proxy = CuttingProxy(server.port)
    try:
        yield proxy, ["--store", server.make_url(name, await proxy.start())]
    finally:
        await proxy.close()


@asynccontextmanager
async def start_command(
    folder: Path, *flags: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Callable[[], Awaitable[None]]]]:
    """Run a prompt with a command that works; yield its process, and what ends the command."""
    ran, hangs = folder / "work" / "ran", folder / "work" / "hangs"
    command = f"echo $$ > {ran}; while [ ! -e {hangs} ]; do sleep 0.05; done"
    program = PROGRAM if LONG else ("-c", IMPATIENT)
    flags = ("--sandbox", "off", *flags)

    async def end_command() -> None:
        hangs.touch()
        await wait_until(lambda: not is_alive(int(ran.read_text())))

    def answer(_: ServerRequest) -> ServerAnswer:
        return (ToolCallBlock("b", "bash", {"command": command}),)

    async with start_prompt(folder, answer, *flags, program=program) as process:
        await wait_until(lambda: ran.exists() and ran.read_text().endswith("\n"))
        yield process, end_command


def check_patience(err: bytes, seconds: float) -> bool:
    """Check that the program waited as long as it says; return whether it had to."""
    assert seconds < PATIENCE + BUSY_SECONDS
    # A pause that comes before the result needs no record, so it ends at once.
    is_told = b"did not end within 10 s" in err
    assert not is_told or seconds >= PATIENCE
    return is_told


@pytest.mark.parametrize("name", STOPS if LONG else STOPS[:1])
async def test_s8_a_signal_ends_a_session_whose_file_another_program_locks(
    tmp_path: Path, name: str
) -> None:
    async with start_command(tmp_path) as (process, end_command):
        path = read_last_record(tmp_path)
        with closing(sqlite3.connect(path, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            await end_command()  # its result cannot be recorded
            is_told = check_patience(*await stop(process, name))
    assert is_told or name == "SIGTERM"
    assert sum(isinstance(event, ToolCallStarted) for event in open_reader(path).read()) == 1


@pytest.mark.parametrize("name", STOPS if LONG else STOPS[1:])
async def test_s8_a_signal_ends_a_session_whose_database_hangs(
    tmp_path: Path, name: str, postgres_server: PostgresServer
) -> None:
    async with (
        open_proxy(postgres_server) as (proxy, flags),
        start_command(tmp_path, *flags) as (process, end_command),
    ):
        proxy.faults = ["stall"] * 1_000
        await end_command()
        check_patience(*await stop(process, name))


MESSAGES = {
    "connection": b"",
    "new session": b"INSERT INTO mudroom.sessions",
    "end of the session": b"lease_token = NULL",
}
"""What the message contains at which the database falls silent."""


@pytest.mark.parametrize(
    ("message", "name"),
    [
        *(
            (message, name)
            for place, message in enumerate(MESSAGES)
            for number, name in enumerate(STOPS)
            if LONG or place % 2 == number
        ),
        ("end of the session", None),  # a session that has ended does not wait
    ],
)
async def test_s8_a_session_ends_whose_database_falls_silent(
    tmp_path: Path, message: str, name: str | None, postgres_server: PostgresServer
) -> None:
    async with open_proxy(postgres_server) as (proxy, flags):
        proxy.text, proxy.faults = MESSAGES[message], ["stall"] * 1_000
        async with start_prompt(tmp_path, lambda _: "done", *flags) as process:
            await wait_until(lambda: proxy.cuts)
            begin = time.monotonic()
            if name:
                process.send_signal(signal.Signals[name])
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert time.monotonic() - begin < END_SECONDS + BUSY_SECONDS
    assert b"Traceback" not in err
    if name:
        number = signal.Signals[name]
        assert process.returncode in (128 + number, -number)
    else:
        assert (process.returncode, out) == (0, b"done\n"), err
