"""Memory journal and memory store: the conformance suites, and the full disk."""

import pytest

from mudroom._adapters.journals.memory import MemoryJournal, MemoryStore
from mudroom.testing import journal_conformance, store_conformance
from mudroom.testing.journal_conformance import count_appends_until_failure, read_all


async def open_journal() -> MemoryJournal:
    return MemoryJournal()


async def open_stored_journal() -> MemoryJournal:
    return await MemoryStore().create("a session")


@pytest.mark.parametrize("open_journal", [open_journal, open_stored_journal])
@pytest.mark.parametrize("check", journal_conformance.CHECKS, ids=lambda check: check.__name__)
async def test_a_memory_journal_conforms(
    check: journal_conformance.Check, open_journal: journal_conformance.OpenJournal
) -> None:
    await check(open_journal)


@pytest.mark.parametrize("check", store_conformance.CHECKS, ids=lambda check: check.__name__)
async def test_a_memory_store_conforms(check: store_conformance.Check) -> None:
    await check(MemoryStore)


async def test_a_full_journal_refuses_events_and_keeps_the_others() -> None:
    journal = MemoryJournal(capacity=7)
    assert await count_appends_until_failure(journal) == 7
    assert [event.at for event in await read_all(journal)] == list(range(7))
