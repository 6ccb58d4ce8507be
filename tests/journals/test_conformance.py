"""Every journal and every store passes the conformance suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom._adapters.journals.memory import MemoryJournal, MemoryStore
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._core.ports import Journal, SessionStore
from mudroom.testing import journal_conformance, store_conformance
from mudroom.testing.journal_conformance import count_appends_until_failure, read_all
from mudroom_postgres.store import PostgresStore

ID = "11111111-1111-4111-8111-111111111111"


def open_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> SessionStore:
    match kind:
        case "sqlite":
            return SqliteStore(folder / "home")
        case "postgres":
            return PostgresStore(request.getfixturevalue("postgres_url"))
        case _:
            return MemoryStore()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("check", store_conformance.CHECKS, ids=lambda check: check.__name__)
async def test_a_store_conforms(
    check: store_conformance.Check, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = open_store(kind, request, tmp_path)
    await check(lambda: store)


@pytest.mark.parametrize("kind", ["", "memory", "sqlite", "postgres"])
@pytest.mark.parametrize("check", journal_conformance.CHECKS, ids=lambda check: check.__name__)
async def test_a_journal_conforms(
    check: journal_conformance.Check, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = open_store(kind, request, tmp_path)

    async def open_journal() -> Journal:
        if kind == "sqlite":
            path = tmp_path / "home" / "sessions" / "s1.db"
            return SqliteJournal.open(path, session="s1", create=True)
        return await store.create(ID) if kind else MemoryJournal()

    await check(open_journal)


async def test_a_full_memory_journal_refuses_events_and_keeps_the_others() -> None:
    journal = MemoryJournal(capacity=7)
    assert await count_appends_until_failure(journal) == 7
    assert [event.at for event in await read_all(journal)] == list(range(7))
