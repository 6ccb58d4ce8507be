import pytest

from mudroom.journals.memory import MemoryJournal
from mudroom.testing.journal_conformance import CHECKS, Check, count_appends_until_failure


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conforms(check: Check) -> None:
    await check(MemoryJournal)


async def test_a_full_one_refuses_and_keeps_what_was_saved() -> None:
    journal = MemoryJournal(capacity=7)
    assert await count_appends_until_failure(journal) == 7
    assert [event.at for event in journal.read()] == list(range(7))
