"""PostgreSQL store: a server that dies, connections that break, a full disk, a pooler."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Generator
from uuid import UUID

import pytest

from mudroom._adapters.journals.sessions import read_events
from mudroom._core.events import NoteInjected
from mudroom.errors import JournalError
from mudroom.testing import journal_conformance, store_conformance
from mudroom_postgres import connections
from mudroom_postgres import journal as postgres_journal
from mudroom_postgres.store import PostgresStore

from ...postgres_server import PostgresServer, find_free_port, find_program, run_unprivileged
from ...waiting import block_until, wait_until
from .proxy import CuttingProxy

ID = "11111111-1111-4111-8111-111111111111"
LONG = bool(os.environ.get("MUDROOM_LONG"))
WRITERS = 8
KILLS = 20 if LONG else 2
CUTS = 150 if LONG else 12


def make_note(n: int, run: str = "1") -> NoteInjected:
    return NoteInjected(at=n, run=run, text="x" * 200)


def make_id(number: int) -> str:
    return str(UUID(int=number, version=4))


async def read_times(store: PostgresStore, session: str) -> list[float]:
    return [event.at for event in await read_events(store, session)]


@pytest.fixture
def own_server() -> Generator[PostgresServer]:
    """Start a server that the test may kill."""
    if not find_program("initdb"):
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


async def test_a_killed_server_loses_no_event_and_appends_go_on(own_server: PostgresServer) -> None:
    store = PostgresStore(own_server.create_database())
    journals = [await store.create(make_id(number)) for number in range(WRITERS)]
    stored = [0] * WRITERS
    is_done = False

    async def write(number: int) -> None:
        while not is_done:
            await journals[number].append(make_note(stored[number] + 1))
            stored[number] += 1

    writing = [asyncio.create_task(write(number)) for number in range(WRITERS)]
    delays: list[float] = []
    chance = random.Random(18)
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        before = sum(stored)
        began = time.monotonic()
        while sum(stored) == before:
            assert not any(task.done() for task in writing), [
                task for task in writing if task.done()
            ]
            await asyncio.sleep(0.005)
        delays.append(time.monotonic() - began)
    is_done = True
    await asyncio.gather(*writing)
    for number, journal in enumerate(journals):
        await journal.close()
        assert await read_times(store, make_id(number)) == list(range(1, stored[number] + 1))
    print(f"appends went on after {sorted(delays)} s")
    assert max(delays) < 15


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncGenerator[tuple[CuttingProxy, int]]:
    proxy = CuttingProxy(postgres_server.port)
    port = await proxy.start()
    yield proxy, port
    await proxy.close()


async def test_events_of_broken_connections_are_stored_once(
    proxy: tuple[CuttingProxy, int],
    postgres_url: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_journal, "_ATTEMPT_SECONDS", 0.4)
    cutting, port = proxy
    database = postgres_url.rpartition("/")[2]
    store = PostgresStore(postgres_server.make_url(database, port))
    journals = [await store.create(make_id(number)) for number in range(4)]
    chance = random.Random(18)
    kinds = ["after", "before", "half"] * 3 + ["stall"]
    cutting.faults = [chance.choice(kinds) for _ in range(CUTS)]
    cutting.faults[:4] = ["after", "before", "half", "stall"]
    total = 0
    while cutting.cuts < CUTS or total < 20:
        total += 1
        await asyncio.gather(*(journal.append(make_note(total)) for journal in journals))
    for number, journal in enumerate(journals):
        await journal.close()
        assert await read_times(store, make_id(number)) == list(range(1, total + 1))


async def test_a_run_waits_for_the_database_and_then_reads_what_to_do(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(postgres_journal, "PATIENCE", 1.0)
    store = PostgresStore(own_server.create_database())
    journal = await store.create(ID)
    await journal.append(make_note(1))
    await asyncio.to_thread(own_server.kill)
    stored = 1
    with pytest.raises(JournalError, match="could not be reached for") as caught:
        while True:  # a process of the killed server may still answer
            await journal.append(make_note(stored + 1))
            stored += 1
    assert caught.value.message.endswith("this was not recorded: Connection refused")
    assert "resume" in caught.value.remedy
    with pytest.raises(JournalError):
        await journal.append(make_note(0))
    await journal.close()
    # The wait is told, and its end with an error is not told as one with an answer.
    (waits,) = [record.getMessage() for record in caplog.records]
    assert "for about 1 s" in waits
    await asyncio.to_thread(own_server.start)
    assert await read_times(store, ID) == list(range(1, stored + 1))


async def test_waits_for_the_database_are_told_once_and_their_end_too(
    own_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.3)
    url = own_server.create_database()
    store = PostgresStore(url)
    journals = [await store.create(make_id(number)) for number in range(3)]
    for journal in journals:
        await journal.append(make_note(1))
    await asyncio.to_thread(own_server.kill)
    appends = [asyncio.create_task(journal.append(make_note(2))) for journal in journals]
    await wait_until(lambda: bool(caplog.records))
    await asyncio.sleep(0.5)  # the other sessions wait for longer than that, too
    await asyncio.to_thread(own_server.start)
    await asyncio.gather(*appends)
    await wait_until(lambda: len(caplog.records) > 1)
    for journal in journals:
        await journal.close()
    waits, goes_on = [record.getMessage() for record in caplog.records]
    assert waits == (
        f"waiting for the database ({url}): Connection refused. mudroom tries again for "
        "about 60 s; nothing is recorded meanwhile."
    )
    assert re.fullmatch(r"the database answers again after \d+ s \(.*\)\. Work goes on\.", goes_on)
    # Screens are drawn in the thread of the session.
    assert {record.threadName for record in caplog.records} == {threading.current_thread().name}


async def test_a_server_that_refuses_connections_for_long_is_told_from_one_that_is_away(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_journal, "PATIENCE", 0.3)
    name = postgres_server.create_database().rpartition("/")[2]
    postgres_server.run_sql(f"CREATE ROLE limited LOGIN; GRANT ALL ON DATABASE {name} TO limited")
    store = PostgresStore(postgres_server.make_url(name, user="limited"))
    journal = await store.create(ID)
    await journal.append(make_note(1))
    postgres_server.run_sql("ALTER ROLE limited CONNECTION LIMIT 0")
    postgres_server.run_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'limited'"
    )
    with pytest.raises(JournalError) as caught:
        await journal.append(make_note(2))
    assert caught.value.message == (
        "the database server had no free connection for 0.3 seconds; this was not recorded: "
        'too many connections for role "limited"'
    )
    assert "max_connections" in caught.value.remedy
    assert "resume" in caught.value.remedy
    await journal.close()


FULL = """
CREATE FUNCTION mudroom.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full', HINT = 'Check it.'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON mudroom.events FOR EACH ROW
    WHEN (new.session = '{session}') EXECUTE FUNCTION mudroom.refuse()
"""


async def test_a_full_disk_ends_a_session_with_a_remedy_and_no_other(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database()
    store = PostgresStore(url)
    failing, other = [await store.create(make_id(number)) for number in range(2)]
    for journal in (failing, other):
        await journal.append(make_note(1))
    postgres_server.run_sql(FULL.format(session=make_id(0)), url.rpartition("/")[2])
    with pytest.raises(JournalError, match="disk of the database server is full") as caught:
        await failing.append(make_note(2))
    assert caught.value.message.endswith("could not extend file HINT: Check it.")
    assert "Free some space" in caught.value.remedy
    await other.append(make_note(2))
    for journal in (failing, other):
        await journal.close()
    assert await read_times(store, make_id(0)) == [1]
    assert await read_times(store, make_id(1)) == [1, 2]


async def test_a_read_only_database_is_read_and_refuses_events(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database()
    name = url.rpartition("/")[2]
    store = PostgresStore(url)
    journal = await store.create(ID)
    await journal.append(make_note(1))
    postgres_server.run_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    postgres_server.run_sql(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    )
    with pytest.raises(JournalError, match="the database is read-only") as caught:
        await journal.append(make_note(2))
    assert "primary" in caught.value.remedy
    await journal.close()
    assert await read_times(store, ID) == [1]


async def test_a_connection_without_work_is_closed_while_another_one_works(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_IDLE_SECONDS", 0.3)
    url = postgres_server.create_database()
    name = url.rpartition("/")[2]
    database = connections.get_database(url)
    together = connections.make_work("SELECT pg_sleep(0.2)")
    await asyncio.gather(*(database.run(together) for _ in range(4)))
    count = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
    assert postgres_server.run_sql(count) == "4"

    async with asyncio.timeout(20):
        # Each query uses one connection, so that the others have no work.
        while (await database.run(connections.make_work(count)))[0]["count"] > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_followers_see_each_event_of_eight_writers_once(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    count = 200 if LONG else 40
    journals = [await store.create(make_id(number)) for number in range(WRITERS)]
    sent: dict[tuple[int, float], float] = {}
    delays: list[float] = []
    for journal in journals:
        await journal.append(make_note(0))

    async def follow(number: int) -> list[float]:
        reader = await store.open(make_id(number), read_only=True)
        times: list[float] = []
        async for event in reader.follow(1):
            times.append(event.at)
            delays.append(time.monotonic() - sent[number, event.at])
            if len(times) == count:
                await reader.close()
        return times

    async def write(number: int) -> None:
        for n in range(1, count + 1):
            await journals[number].append(make_note(n))
            sent[number, n] = time.monotonic()
            await asyncio.sleep(0.01)

    following = [asyncio.create_task(follow(number)) for number in range(WRITERS)]
    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    for times in await asyncio.gather(*following):
        assert times == list(range(1, count + 1))
    for journal in journals:
        await journal.close()
    delays.sort()
    print(
        f"delay p50 {delays[len(delays) // 2]:.3f} s, p95 {delays[len(delays) * 95 // 100]:.3f} s"
    )


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def pooled_server() -> Generator[tuple[PostgresServer, int]]:
    """Start a server that logs statements, and PgBouncer in transaction mode before it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not find_program("initdb") or program is None:
        pytest.skip("pgbouncer or PostgreSQL is not installed")
    server = PostgresServer(settings=("fsync=off", "log_statement=all"))
    port = find_free_port()
    settings = server.folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=mudroom\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nserver_round_robin = 1\n"
    )
    settings.chmod(0o644)
    pooler: subprocess.Popen[bytes] | None = None
    try:
        server.start()
        pooler = subprocess.Popen(
            run_unprivileged(program, "-q", str(settings)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        block_until(lambda: is_open(port))
        yield server, port
    finally:
        if pooler is not None:
            pooler.kill()
            pooler.wait()
        server.remove()


async def test_a_pooler_may_change_connections_between_transactions(
    pooled_server: tuple[PostgresServer, int],
) -> None:
    server, port = pooled_server
    name = server.create_database().rpartition("/")[2]
    store = PostgresStore(server.make_url(name, port))
    await store.list()

    def empty() -> None:
        server.run_sql("TRUNCATE mudroom.sessions, mudroom.events", name)

    step = 1 if LONG else 4
    for check in store_conformance.CHECKS[::step]:
        empty()
        await check(lambda: store)
    for check in journal_conformance.CHECKS[::step]:
        empty()
        await check(lambda: store.create(ID))
    log = server.read_log()
    assert "COPY" in log
    assert "NOTIFY" not in log
    assert "LISTEN" not in log
    assert log.count("pg_advisory") == log.count("pg_advisory_xact_lock") == 1
