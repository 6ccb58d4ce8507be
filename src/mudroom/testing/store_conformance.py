"""Conformance suite for session stores. An adapter's tests run each of `CHECKS` against it:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_store(check, tmp_path):
        await check(lambda: MyStore(tmp_path))

Each check opens a new, empty store. Two stores from `open_store` need not share sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .._adapters.journals.sessions import read_events, read_summary
from .._core.events import NoteInjected, SessionOpened
from .._core.messages import Usage
from .._core.ports import SessionStore
from .._projections.session_summary import SessionSummary, summarize_session
from ..errors import JournalBusy, JournalError, UnknownName, UsageError
from ._checks import collect_checks
from .event_builders import run_finished, run_started
from .journal_conformance import read_all

OpenStore = Callable[[], SessionStore]
Check = Callable[[OpenStore], Awaitable[None]]

_A = "aaaaaaaa-1111-4111-8111-111111111111"
_B = "aaaaaaaa-2222-4222-8222-222222222222"
_C = "cccccccc-3333-4333-8333-333333333333"
_MISSING = "dddddddd-4444-4444-8444-444444444444"
_PATIENCE = 10.0  # seconds that a follower may take to see an event


async def check_a_session_is_created_and_read(open_store: OpenStore) -> None:
    """Check that a new session is unknown until its first event, and can be read after its end."""
    store = open_store()
    journal = await store.create(_A)
    assert await read_all(journal) == []
    await _expect_unknown(store, _A)
    await journal.append(_opened(_A), _note(1))
    [info] = await store.list()
    assert info.id == _A
    assert info.size > 0
    assert info.modified > 1_000_000_000
    await journal.close()
    again = await store.open(_A, read_only=True)
    assert await read_all(again) == [_opened(_A), _note(1)]
    await again.close()


async def check_a_session_is_created_once(open_store: OpenStore) -> None:
    """Check that a second session with the same id is refused, and the first one stays."""
    store = open_store()
    await _create(store, _A)
    await _expect(JournalError, store.create(_A))
    assert await _read(store, _A) == [_opened(_A)]


async def check_a_session_is_continued(open_store: OpenStore) -> None:
    """Check that an opened session keeps its events, and new ones follow them."""
    store = open_store()
    await _create(store, _A)
    journal = await store.open(_A)
    assert await journal.append(_note(2)) == 2
    await journal.close()
    assert await _read(store, _A) == [_opened(_A), _note(2)]


async def check_a_session_has_one_writer(open_store: OpenStore) -> None:
    """Check that a second writer is refused, readers are not, and the writer is named."""
    store = open_store()
    journal = await store.create(_A)
    await journal.append(_opened(_A))
    assert await store.find_writer(_A)
    await _expect(JournalBusy, store.open(_A))
    await _expect(JournalBusy, store.delete(_A))
    assert await _read(store, _A) == [_opened(_A)]
    await journal.append(_note(2))
    await journal.close()
    assert await store.find_writer(_A) == ""
    await (await store.open(_A)).close()


async def check_a_read_only_journal_refuses_events(open_store: OpenStore) -> None:
    """Check that a read-only journal can be opened many times and neither appends nor locks."""
    store = open_store()
    await _create(store, _A)
    readers = [await store.open(_A, read_only=True) for _ in range(3)]
    await _expect(JournalError, readers[0].append(_note(2)))
    assert await store.find_writer(_A) == ""
    for reader in readers:
        assert await read_all(reader) == [_opened(_A)]
        await reader.close()


async def check_a_reader_follows_a_writer(open_store: OpenStore) -> None:
    """Check that a read-only journal gives the events of its writer until it is closed."""
    store = open_store()
    journal = await store.create(_A)
    await journal.append(_opened(_A))
    reader = await store.open(_A, read_only=True)
    times: list[float] = []

    async def follow() -> None:
        async for event in reader.follow(1):
            times.append(event.at)
            if event.at == 5:
                await reader.close()

    async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(follow())
        for n in range(2, 6):
            await journal.append(_note(n))
            await asyncio.sleep(0.01)
    assert times == [2, 3, 4, 5]
    await journal.close()


async def check_sessions_are_listed_newest_first(open_store: OpenStore) -> None:
    """Check that the session written last comes first."""
    store = open_store()
    for session in (_A, _B, _C):
        await _create(store, session)
        await asyncio.sleep(0.02)
    assert [info.id for info in await store.list()] == [_C, _B, _A]
    journal = await store.open(_A)
    await journal.append(_note(2))
    await journal.close()
    assert (await store.list())[0].id == _A


async def check_a_session_is_found_by_id_and_name(open_store: OpenStore) -> None:
    """Check that a session is found by its id, a unique beginning of the id, and its name."""
    store = open_store()
    for session in (_A, _B, _C):
        await _create(store, session)
    await store.rename(_B, "my work")
    assert await store.find(_A) == _A
    assert await store.find("c") == await store.find(_C) == _C
    assert await store.find(_B[:12]) == await store.find("my work") == _B
    await _expect(UsageError, store.find("aaaaaaaa"))
    for text in ("", "*", "../x", "my", _MISSING):
        await _expect(UnknownName, store.find(text))


async def check_a_header_has_the_facts(open_store: OpenStore) -> None:
    """Check that a header has id, folder, name and time, even while the session is written."""
    store = open_store()
    journal = await store.create(_A)
    await store.rename(_A, "named before its first event")
    await journal.append(_opened(_A), _note(2))
    assert (await store.read_header(_A)).name == "named before its first event"
    await store.rename(_A, "renamed while it is written")
    header = await store.read_header(_A)
    await journal.append(_note(3))
    await journal.close()
    assert (header.id, header.folder) == (_A, "/work of the session")
    assert header.name == "renamed while it is written"
    assert header.created > 1_000_000_000
    assert header.program
    assert len(await _read(store, _A)) == 3


async def check_a_long_session_is_summarized(open_store: OpenStore) -> None:
    """Check that a list reflects all events, even if the store saves states of summaries."""
    store = open_store()
    await _create(store, _A)
    for root in ("1", "2"):
        journal = await store.open(_A)
        await journal.append(run_started(root, prompt=f"prompt {root}"))
        for number in range(150):
            run = f"{root}.1.{number}"
            await journal.append(run_started(run, root), _note(number))
            await journal.append(run_finished(run, usage=Usage(number, 1)))
        await journal.close()
        await _check_summary(store, _A)
    journal = await store.open(_A)
    await journal.append(run_finished("1", usage=Usage(7, 7)))
    await _check_summary(store, _A)
    await journal.close()


async def check_names_are_unique_and_plain(open_store: OpenStore) -> None:
    """Check that a name can be changed and removed, but not used twice, nor look like an id."""
    store = open_store()
    for session in (_A, _B):
        await _create(store, session)
    await store.rename(_A, "first")
    await store.rename(_A, "first")
    await store.check_name("first", _A)
    await _expect(UsageError, store.check_name("first"))
    await _expect(UsageError, store.rename(_B, "first"))
    for name in ("last", "abc", "-x", "two\nlines", " space", "x" * 81):
        await _expect(UsageError, store.rename(_B, name))
        await _expect(UsageError, store.check_name(name))
    await store.rename(_A, "")
    await store.rename(_B, "first")
    assert await store.find("first") == _B
    assert (await store.read_header(_A)).name == ""


async def check_a_deleted_session_is_gone(open_store: OpenStore) -> None:
    """Check that a deleted session is neither listed nor found, and its id can be used again."""
    store = open_store()
    for session in (_A, _B):
        await _create(store, session)
    await store.delete(_A)
    assert [info.id for info in await store.list()] == [_B]
    await _expect(UnknownName, store.find(_A))
    await _create(store, _A)
    assert await _read(store, _A) == [_opened(_A)]


async def check_an_unknown_session_is_named(open_store: OpenStore) -> None:
    """Check that methods refuse an unknown id, and that no process writes it."""
    store = open_store()
    await _expect_unknown(store, _MISSING)
    await _expect(UnknownName, store.open(_MISSING))
    await _expect(UnknownName, store.delete(_MISSING))
    await _expect(UnknownName, store.rename(_MISSING, "x y"))
    assert await store.find_writer(_MISSING) == ""


CHECKS: tuple[Check, ...] = collect_checks(globals())


async def _check_summary(store: SessionStore, session: str) -> None:
    info = await store.read_info(session)
    header = await store.read_header(session)
    blank = SessionSummary(id=session, when=info.modified, size=info.size, name=header.name)
    is_live = bool(await store.find_writer(session))
    events = await read_events(store, session)
    expected = summarize_session(blank, events, is_live=is_live)
    assert await read_summary(store, info) == expected


async def _create(store: SessionStore, session: str) -> None:
    journal = await store.create(session)
    await journal.append(_opened(session))
    await journal.close()


async def _read(store: SessionStore, session: str) -> list[object]:
    journal = await store.open(session, read_only=True)
    events = await read_all(journal)
    await journal.close()
    return [*events]


async def _expect_unknown(store: SessionStore, session: str) -> None:
    await _expect(UnknownName, store.open(session, read_only=True))
    await _expect(UnknownName, store.read_header(session))
    await _expect(UnknownName, store.read_info(session))
    await _expect(UnknownName, store.find(session))
    assert list(await store.list()) == []


async def _expect(error_type: type[Exception], work: Awaitable[object]) -> None:
    try:
        await work
    except error_type:
        return
    raise AssertionError(f"{error_type.__name__} was expected")


def _opened(session: str) -> SessionOpened:
    return SessionOpened(at=1, session=session, cwd="/work of the session", version="1")


def _note(at: float) -> NoteInjected:
    return NoteInjected(at=at, run="1", text="a note")
