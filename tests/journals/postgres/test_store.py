"""PostgreSQL store: two writers of one session, leases, versions of the tables, damage."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.journals.sessions import delete_session, read_events
from mudroom._core.events import NoteInjected, RunWaiting, SessionOpened
from mudroom._session.session import Session
from mudroom.errors import JournalBusy, JournalDamaged, JournalError, JournalNewer, UsageError
from mudroom.testing import ScriptedModel
from mudroom.testing.journal_conformance import read_all
from mudroom_postgres.connections import Database, get_database, make_work
from mudroom_postgres.driver import check_url, hide_password
from mudroom_postgres.journal import PostgresJournal
from mudroom_postgres.store import PostgresStore

from ...postgres_server import PostgresServer

ID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def make_note(n: float, text: str = "a note") -> NoteInjected:
    return NoteInjected(at=n, run="1", text=text)


async def create(store: PostgresStore, session: str = ID, *, notes: int = 0) -> PostgresJournal:
    journal = await store.create(session)
    await journal.append(SessionOpened(at=1, session=session, cwd="/work", version="1"))
    if notes:
        await journal.append(*(make_note(n) for n in range(2, notes + 2)))
    return journal


def run_sql(server: PostgresServer, url: str, statement: str) -> str:
    return server.run_sql(statement, url.rpartition("/")[2])


def end_lease(server: PostgresServer, url: str) -> None:
    """Make the leases of all sessions end, as if their writers had hung."""
    run_sql(server, url, "UPDATE mudroom.sessions SET lease_until = now() - interval '1 s'")


async def test_a_writer_that_was_replaced_appends_nothing(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    store = PostgresStore(postgres_url)
    old = await create(store)
    end_lease(postgres_server, postgres_url)
    new = await store.open(ID)
    await new.append(make_note(2))
    with pytest.raises(JournalBusy, match="taken this session over"):
        await old.append(make_note(99), make_note(100))
    with pytest.raises(JournalBusy):
        await old.append(make_note(101))
    await old.close()
    # Its end leaves the lease of the new one.
    assert await store.find_writer(ID)
    with pytest.raises(JournalBusy):
        await store.open(ID)
    assert await new.append(make_note(3)) == 3
    await new.close()
    assert [event.at for event in await read_events(store, ID)] == [1, 2, 3]
    assert await store.find_writer(ID) == ""


async def test_s5_two_writers_of_one_session_never_mix_their_records(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    store = PostgresStore(postgres_url)
    first = await create(store)
    end_lease(postgres_server, postgres_url)
    writers = {"first": first, "second": await store.open(ID)}

    async def append(name: str) -> list[str]:
        stored: list[str] = []
        with suppress(JournalBusy):
            for n in range(20):
                texts = [f"{name} {n}", f"{name} {n}b"]
                await writers[name].append(*(make_note(n, text) for text in texts))
                stored += texts
        return stored

    kept = await asyncio.gather(*map(append, writers))
    events = await read_events(store, ID)
    texts = [event.text for event in events if isinstance(event, NoteInjected)]
    assert texts in kept
    assert len({text.split()[0] for text in texts}) == 1
    for journal in writers.values():
        await journal.close()


async def test_a_session_of_a_process_that_was_killed_is_opened_at_once(postgres_url: str) -> None:
    code = f"""
import asyncio, os, signal
from mudroom._core.events import SessionOpened
from mudroom_postgres.store import PostgresStore
async def main():
    journal = await PostgresStore({postgres_url!r}).create({ID!r})
    await journal.append(SessionOpened(at=1, session={ID!r}, cwd="/work", version="1"))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == -9
    store = PostgresStore(postgres_url)
    assert await store.find_writer(ID) == ""
    journal = await store.open(ID)
    assert await journal.append(make_note(2)) == 2
    await journal.close()


async def test_the_lease_of_another_machine_is_respected_until_it_ends(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    store = PostgresStore(postgres_url)
    await (await create(store)).close()
    run_sql(
        postgres_server,
        postgres_url,
        "UPDATE mudroom.sessions SET lease_token = gen_random_uuid(), lease_process = 'far 1 1', "
        "lease_writer = 'process 1 on far', lease_until = now() + interval '1 hour'",
    )
    assert await store.find_writer(ID) == "process 1 on far"
    with pytest.raises(JournalBusy, match="process 1 on far is writing"):
        await store.open(ID)
    with pytest.raises(JournalBusy):
        await store.delete(ID)
    end_lease(postgres_server, postgres_url)
    await (await store.open(ID)).close()


@pytest.mark.parametrize(
    ("version", "error_type"), [(2, JournalNewer), (0, JournalError)], ids=["newer", "older"]
)
async def test_tables_of_another_version_are_refused_with_a_remedy(
    version: int, error_type: type[JournalError], postgres_server: PostgresServer
) -> None:
    url = postgres_server.create_database()
    run_sql(
        postgres_server,
        url,
        "CREATE SCHEMA mudroom; CREATE TABLE mudroom.schema_version (version int NOT NULL); "
        f"INSERT INTO mudroom.schema_version VALUES ({version})",
    )
    store = PostgresStore(url)
    for work in (store.list(), store.create(ID)):
        with pytest.raises(error_type, match=f"schema {version}; this program knows 1") as caught:
            await work
        assert caught.value.remedy
    assert run_sql(postgres_server, url, "SELECT to_regclass('mudroom.events')") == ""


async def test_many_processes_may_create_the_tables_together(
    postgres_server: PostgresServer,
) -> None:
    from mudroom_postgres.connections import prepare_schema
    from mudroom_postgres.driver import connect

    url = postgres_server.create_database()
    connections = [await connect(url) for _ in range(8)]
    await asyncio.gather(*(prepare_schema(connection, "") for connection in connections))
    for connection in connections:
        await connection.close()
    assert run_sql(postgres_server, url, "SELECT count(*) FROM mudroom.schema_version") == "1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE mudroom.events SET body = 'x' WHERE n = 5", "record 5 is damaged"),
        ("DELETE FROM mudroom.events WHERE n = 5", "record 5 is missing"),
    ],
)
async def test_a_damaged_session_gives_its_events_up_to_the_damage(
    change: str, message: str, postgres_url: str, postgres_server: PostgresServer
) -> None:
    store = PostgresStore(postgres_url)
    await (await create(store, notes=10)).close()
    await (await create(store, OTHER)).close()
    run_sql(postgres_server, postgres_url, change)
    journal = await store.open(ID, read_only=True)
    times: list[float] = []
    with pytest.raises(JournalDamaged, match=message):
        async for event in journal.read():
            times.append(event.at)
    assert times == [1, 2, 3, 4]
    assert len(await store.list()) == 2
    assert len(await read_all(await store.open(OTHER, read_only=True))) == 1


async def test_a_session_that_no_event_was_stored_of_leaves_nothing(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    store = PostgresStore(postgres_url)
    await (await store.create(ID)).close()
    assert run_sql(postgres_server, postgres_url, "SELECT count(*) FROM mudroom.sessions") == "0"


async def test_a_deleted_session_leaves_no_long_outputs(postgres_url: str, tmp_path: Path) -> None:
    store = PostgresStore(postgres_url)
    await (await create(store)).close()
    spill = tmp_path / "spills" / ID / "1.txt"
    spill.parent.mkdir(parents=True)
    spill.write_text("long output")
    await delete_session(store, str(tmp_path), ID)
    assert not spill.parent.exists()


TAKE = """
UPDATE mudroom.sessions SET lease_token = gen_random_uuid(), lease_writer = 'process 1 on other',
    lease_process = 'other 1 1', lease_until = now() + interval '1 minute' RETURNING id
"""


class InterruptedDatabase:
    """A database in which another machine takes all leases after some queries of this one."""

    def __init__(self, database: Database, queries: int) -> None:
        self.place = database.place
        self.is_taken = False
        self._database = database
        self._left = queries

    async def run(self, work: Any, *, is_repeatable: bool = True) -> Any:
        result = await self._database.run(work, is_repeatable=is_repeatable)
        self._left -= 1
        if not self._left:
            self.is_taken = bool(await self._database.run(make_work(TAKE)))
        return result


@pytest.mark.parametrize("queries", range(1, 5))
async def test_a_session_that_another_machine_just_opened_is_not_deleted(
    queries: int, postgres_url: str
) -> None:
    store = PostgresStore(postgres_url)
    await (await create(store)).close()
    database = InterruptedDatabase(get_database(postgres_url), queries)
    vars(store)["_database"] = database
    with suppress(JournalBusy):
        await store.delete(ID)
    assert len(await PostgresStore(postgres_url).list()) == database.is_taken


def test_a_store_is_used_by_one_event_loop_after_the_other(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)

    async def write() -> None:
        await (await create(store)).close()

    async def list_ids() -> list[str]:
        return [info.id for info in await store.list()]

    asyncio.run(write())
    assert asyncio.run(list_ids()) == [ID]


@pytest.mark.parametrize(
    "url",
    [
        "mysql://a:secret@b/c",
        "postgresql://u:secret@h:port/d",
        "postgresql://u:secret@h:1,i:port/d",
        "postgresql://u@h:65536/d",
        "postgresql://u@[::1/d",
        "u:secret@host/database",
        "postgresql:/u:secret@host/database",
        "postgresql:u:secret@host/database",
        "postgresql://u:a/secret@host/database",
        "postgresql://u:12/secret@host/database",
        "postgresql://u:12/secret?b@host/database",
        "postgresql://u:a?secret@host/database",
        "postgresql://u:a#secret@host/database",
        "postgresql://u:a@secret@host/database",
    ],
)
def test_a_bad_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="address of a PostgreSQL database") as caught:
        PostgresStore(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h:1/d", "postgresql://u@h:1/d"),
        ("postgresql://u:a/secret@h/d", "postgresql://u@h/d"),
        ("postgresql://u:1/secret?b@h/d", "postgresql://u@h/d"),
        ("postgresql://h:1/d?user=a%40b", "postgresql://h:1/d?user=a%40b"),
        ("postgresql://u@h:1/d?user=a@b", "postgresql://u@h:1/d?user=a@b"),
        ("postgresql://h/d?password=se/c@ret&sslmode=require", "postgresql://h/d?sslmode=require"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert hide_password(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgres:///d",
        "postgresql://u@h:1,i:2/d?target_session_attrs=primary",
        "postgresql://u:a%2Fb%40c@[::1]:1/d",
        "postgresql://u@%2Frun%2Fpostgresql/d",
    ],
)
def test_every_form_of_an_address_is_accepted(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    ("parameter", "cause"),
    [
        ("sslmode=bogus", "`sslmode`"),
        ("target_session_attrs=bogus", "target_session_attrs"),
        ("nonsense=1", "nonsense"),
        ("client_min_messages=bogus", "client_min_messages"),
    ],
)
async def test_a_bad_parameter_of_an_address_is_named(
    parameter: str, cause: str, postgres_url: str
) -> None:
    with pytest.raises(JournalError, match="address of the database cannot be used") as caught:
        await PostgresStore(f"{postgres_url}?{parameter}").list()
    assert cause in caught.value.message
    assert "after ?" in caught.value.remedy


@pytest.mark.parametrize(
    ("database", "role", "message", "remedy"),
    [
        ("missing", "", "there is no such database", ""),
        ("postgres", "", "refuses this user", ""),
        ("postgres", "LOGIN CONNECTION LIMIT 0", "no free connection", "max_connections"),
        ("postgres", "LOGIN", "not the rights", "grant"),
    ],
)
async def test_an_error_of_the_server_has_a_remedy_and_no_password(
    database: str, role: str, message: str, remedy: str, postgres_server: PostgresServer
) -> None:
    user = "x" if database == "postgres" else "mudroom"
    if role:
        postgres_server.run_sql(f"CREATE ROLE {user} {role}")
    try:
        url = postgres_server.make_url(database, user=f"{user}:secret")
        with pytest.raises(JournalError, match=message) as caught:
            await PostgresStore(url).list()
    finally:
        if role:
            postgres_server.run_sql(f"DROP ROLE {user}")
    assert caught.value.remedy and remedy in caught.value.remedy.lower()
    assert "secret" not in str(caught.value)


async def test_a_server_that_is_not_there_is_reported_at_once() -> None:
    from ...postgres_server import find_free_port

    url = f"postgresql://mudroom@127.0.0.1:{find_free_port()}/x"
    with pytest.raises(JournalError, match="cannot be reached: Connection refused"):
        await PostgresStore(url).list()


async def test_a_session_is_continued_from_the_address_of_its_store(
    postgres_url: str, tmp_path: Path
) -> None:
    home = str(tmp_path / "home")
    options: dict[str, Any] = {"store": postgres_url, "home": home, "cwd": str(tmp_path)}
    async with Session(model=ScriptedModel(["first"]), **options) as session:
        await session.run("one")
    assert not (tmp_path / "home" / "sessions").exists()
    model = ScriptedModel(["second"])
    async with Session(model=model, resume=session.id, **options) as resumed:
        assert (await resumed.run("two")).text == "second"
    assert "first" in str(model.requests[0].messages)
    events = await read_events(PostgresStore(postgres_url), session.id)
    assert {event.run for event in events} >= {"1", "2"}


def test_neither_the_package_nor_the_store_imports_the_driver() -> None:
    code = (
        "import sys, mudroom, mudroom._cli.main\n"
        "import mudroom._adapters.journals.sessions, mudroom._session.session\n"
        "from mudroom._adapters.journals.sessions import open_store\n"
        "open_store('/tmp')\n"
        "print([name for name in sys.modules if 'asyncpg' in name or 'postgres' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_session_that_another_process_begins_is_busy(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    journal = await store.create(ID)
    with pytest.raises(JournalBusy, match="is writing this session"):
        await store.create(ID)
    await journal.append(RunWaiting(run="1", at=0.0))
    await journal.close()
    with pytest.raises(JournalError, match="exists already"):
        await store.create(ID)
