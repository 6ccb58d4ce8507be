"""PostgreSQL store: the conformance suites of stores and of journals."""

import pytest

from mudroom._core.ports import Journal
from mudroom.testing import journal_conformance, store_conformance
from mudroom_postgres.store import PostgresStore

ID = "11111111-1111-4111-8111-111111111111"


@pytest.mark.parametrize("check", store_conformance.CHECKS, ids=lambda check: check.__name__)
async def test_a_postgres_store_conforms(check: store_conformance.Check, postgres_url: str) -> None:
    await check(lambda: PostgresStore(postgres_url))


@pytest.mark.parametrize("check", journal_conformance.CHECKS, ids=lambda check: check.__name__)
async def test_a_postgres_journal_conforms(
    check: journal_conformance.Check, postgres_url: str
) -> None:
    async def open_journal() -> Journal:
        return await PostgresStore(postgres_url).create(ID)

    await check(open_journal)
