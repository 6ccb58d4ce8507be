"""A database that hangs at one of its messages holds no session that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mudroom import ToolCallBlock
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._cli.output.signals import END_SECONDS
from mudroom._core.events import ToolCallStarted
from mudroom.testing.model_server import ServerAnswer, ServerRequest

from ..journals.postgres.proxy import CuttingProxy
from ..postgres_server import PostgresServer
from ..waiting import SECONDS, is_alive, wait_until
from .test_hanging_at_signals import start_prompt

BUSY_SECONDS = END_SECONDS + 6.0
SHORT = [("sqlite", "SIGINT"), ("postgresql", "SIGTERM")]
LONG = [("sqlite", "SIGTERM"), ("postgresql", "SIGINT")]
CASES = [*SHORT, *(LONG if os.environ.get("MUDROOM_LONG") else ())]


def answer(_: ServerRequest) -> ServerAnswer:
    command = "echo $$ > ran; while [ ! -e hangs ]; do sleep 0.05; done"
    return (ToolCallBlock("b", "bash", {"command": command}),)


class Database:
    """The place of a session's record, which can hang."""

    def __init__(self, folder: Path, flags: list[str], proxy: CuttingProxy | None = None) -> None:
        self.flags = flags
        self.folder = folder
        self._proxy = proxy
        self._lock: sqlite3.Connection | None = None

    @property
    def _path(self) -> Path:
        return next((self.folder / "home").glob("sessions/*.db"))

    def hang(self) -> None:
        """Answer no more: store nothing that is sent, or let another program lock the file."""
        if self._proxy:
            self._proxy.faults = ["stall"] * 1_000
            return
        self._lock = sqlite3.connect(self._path, isolation_level=None)
        self._lock.execute("BEGIN IMMEDIATE")

    def check_record(self) -> None:
        """Check that what was recorded before the hang can be read."""
        if self._lock is not None:
            self._lock.close()
            events = open_reader(self._path).read()
            assert sum(isinstance(event, ToolCallStarted) for event in events) == 1


@asynccontextmanager
async def open_database(
    kind: str, folder: Path, request: pytest.FixtureRequest
) -> AsyncGenerator[Database]:
    if kind == "sqlite":
        yield Database(folder, [])
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database().rpartition("/")[2]
    proxy = CuttingProxy(server.port)
    url = server.make_url(name, await proxy.start())
    try:
        yield Database(folder, ["--store", url], proxy)
    finally:
        await proxy.close()


@pytest.mark.parametrize(("kind", "stop"), CASES)
async def test_s8_a_signal_ends_a_session_whose_database_hangs(
    tmp_path: Path, kind: str, stop: str, request: pytest.FixtureRequest
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with (
        open_database(kind, tmp_path, request) as database,
        start_prompt(tmp_path, answer, "--sandbox", "off", *database.flags) as process,
    ):
        ran = work / "ran"
        await wait_until(lambda: ran.exists() and ran.read_text().endswith("\n"))
        database.hang()
        (work / "hangs").touch()  # the command ends, and its result cannot be recorded
        await wait_until(lambda: not is_alive(int(ran.read_text())))
        begin = time.monotonic()
        process.send_signal(signal.Signals[stop])
        _, err = await asyncio.wait_for(process.communicate(), SECONDS)
        seconds = time.monotonic() - begin
        assert seconds < BUSY_SECONDS
        assert process.returncode == 128 + signal.Signals[stop]
        # A pause that comes before the result needs no record, so it ends at once.
        assert (b"did not end within 10 s" in err) == (seconds >= END_SECONDS)
        assert b"Traceback" not in err
        database.check_record()


MESSAGES = {
    "connection": b"",
    "new session": b"INSERT INTO mudroom.sessions",
    "end of the session": b"lease_token = NULL",
}
"""What the message contains at which the database falls silent."""
MESSAGE_CASES = [
    (message, stop)
    for place, message in enumerate(MESSAGES)
    for number, stop in enumerate(("SIGINT", "SIGTERM"))
    if os.environ.get("MUDROOM_LONG") or place % 2 == number
]


async def run_with_silent_database(
    folder: Path, server: PostgresServer, message: str, stop: str | None
) -> tuple[int | None, bytes, bytes]:
    """Run a prompt whose database falls silent; return the exit code and the output."""
    (folder / "work").mkdir()
    name = server.create_database().rpartition("/")[2]
    proxy = CuttingProxy(server.port)
    proxy.text, proxy.faults = MESSAGES[message], ["stall"] * 1_000
    try:
        url = server.make_url(name, await proxy.start())
        async with start_prompt(folder, lambda _: "done", "--store", url) as process:
            await wait_until(lambda: proxy.cuts)
            begin = time.monotonic()
            if stop:
                process.send_signal(signal.Signals[stop])
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
            assert time.monotonic() - begin < BUSY_SECONDS
            return process.returncode, out, err
    finally:
        await proxy.close()


@pytest.mark.parametrize(("message", "stop"), MESSAGE_CASES)
async def test_s8_a_signal_ends_a_session_whose_database_falls_silent(
    tmp_path: Path, message: str, stop: str, postgres_server: PostgresServer
) -> None:
    code, _, err = await run_with_silent_database(tmp_path, postgres_server, message, stop)
    assert code in (128 + signal.Signals[stop], -signal.Signals[stop])
    assert b"Traceback" not in err


async def test_a_session_that_has_ended_does_not_wait_for_a_silent_database(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    code, out, err = await run_with_silent_database(
        tmp_path, postgres_server, "end of the session", None
    )
    assert (code, out) == (0, b"done\n"), err
