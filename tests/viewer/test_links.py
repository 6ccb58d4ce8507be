"""Addresses of sessions in the viewer are short, and open one session only."""

from __future__ import annotations

from pathlib import Path

from tests.viewer.sessions import SingleSession

from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._viewer.links import make_session_link
from mudroom._viewer.sources import StoredSessions
from mudroom.events import SessionOpened

URL = "http://127.0.0.1:7575/?token=" + 32 * "t"
FIRST = "5e55a1d0-0000-4000-8000-000000000001"
SECOND = "5e55a1d0-0000-4000-8000-000000000002"
OTHER = "0ther000-0000-4000-8000-000000000003"


async def store_sessions(home: Path, *sessions: str) -> StoredSessions:
    for session in sessions:
        path = home / "sessions" / f"{session}.db"
        journal = SqliteJournal.open(path, session=session, create=True)
        await journal.append(SessionOpened(at=1.0, session=session, cwd="/", version="1"))
        await journal.close()
    return StoredSessions(SqliteStore(home))


async def test_an_address_is_short_unless_the_start_of_the_id_does_not_name_the_session(
    tmp_path: Path,
) -> None:
    for number, (stored, shown) in enumerate(
        (((FIRST, OTHER), "5e55a1d0"), ((FIRST, SECOND), FIRST), ((OTHER,), FIRST))
    ):
        sessions = await store_sessions(tmp_path / str(number), *stored)
        link = await make_session_link(URL, sessions, FIRST)
        assert link == f"{URL}#session={shown}"
        assert len(link) < 80 or shown == FIRST


async def test_the_log_of_another_program_has_a_short_address() -> None:
    source = SingleSession(FIRST, [])
    assert await make_session_link(URL, source, FIRST) == f"{URL}#session=5e55a1d0"
    assert await make_session_link(URL, source, "") == URL
