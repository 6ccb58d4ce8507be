"""Functions for any session store, and the choice of the default store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from ..._core.events import StoredEvent
from ..._core.ports import SessionInfo, SessionStore
from ..._core.ports.journal import make_busy_error
from ..._platform.private_files import delete_local_files
from ..._projections.session_summary import (
    SUMMARY_TYPES,
    SessionSummary,
    decode_state,
    summarize_session,
)
from ...errors import JournalError

_DATABASES = {"postgresql": "mudroom_postgres", "postgres": "mudroom_postgres"}
"""The package for each kind of database, by address scheme. The first explains problems with any
other address."""


def open_store(home: str, address: str = "") -> SessionStore:
    """Open the store of session files below a state folder, or a database's store.

    `address` is like postgresql://USER@HOST:PORT/DATABASE, or "" for files. Raises UsageError for
    an unusable one.
    """
    if address:
        return _load_database(address).open_store(address)
    from .sqlite.store import SqliteStore

    return SqliteStore(home)


def check_address(address: str) -> None:
    """Raise UsageError for an unusable database address. Connects to nothing."""
    _load_database(address).check_url(address)


def hide_password(address: str) -> str:
    """Remove the password from a database's address, usable or not, for messages."""
    return _load_database(address).hide_password(address)


def open_connection(address: str) -> Any:  # noqa: ANN401  (of the package)
    """Open a connection to a database for tables beside the sessions.

    It connects lazily. Raises UsageError for an unusable address.
    """
    return _load_database(address).open_connection(address)


def _load_database(address: str) -> ModuleType:
    """Load the package for a database's address, which has four functions.

    It is a guest, loaded by name, so that nothing in the core depends on it.
    """
    scheme = address.partition("://")[0]
    return import_module(_DATABASES.get(scheme, _DATABASES["postgresql"]))


async def stream_events(
    store: SessionStore,
    session: str,
    types: Collection[type[StoredEvent]] = (),
    *,
    after: int = 0,
) -> AsyncGenerator[StoredEvent]:
    """Yield the events of a session, given by its full id.

    Arguments:
        types: event types to yield; () yields all.
        after: position of the last event to skip.

    Raises UnknownName, JournalError.

    Example:
        from mudroom.events import RunFinished
        from mudroom.ports import SessionStore

        async def print_reports(store: SessionStore, session: str) -> None:
            async for event in stream_events(store, session, (RunFinished,)):
                print(event.report.text)
    """
    journal = await store.open(session, read_only=True)
    try:
        async for event in journal.read(after, types=types):
            yield event
    finally:
        await journal.close()


async def read_events(
    store: SessionStore,
    session: str,
    types: Collection[type[StoredEvent]] = (),
    *,
    after: int = 0,
) -> list[StoredEvent]:
    """Read the events of a session; arguments and errors as for `stream_events`."""
    return [event async for event in stream_events(store, session, types, after=after)]


async def read_summary(store: SessionStore, info: SessionInfo) -> SessionSummary:
    """Read the summary of a session; `error` is set if its journal cannot be read."""
    summary = SessionSummary(id=info.id, when=info.modified, size=info.size)
    try:
        header = await store.read_header(info.id)
        summary = replace(summary, name=header.name)
        state = decode_state(header.summary)
        events = await read_events(store, info.id, SUMMARY_TYPES, after=state.position)
    except JournalError as error:
        return replace(summary, error=str(error))
    is_live = bool(await store.find_writer(info.id))
    return summarize_session(summary, events, is_live=is_live, state=state)


async def delete_session(store: SessionStore, home: str, session: str) -> None:
    """Delete a session from its store, with everything it left below the state folder.

    Arguments:
        home: mudroom's state folder.

    Raises UnknownName, JournalBusy.

    Example:
        from mudroom.ports import SessionStore

        async def delete_older(store: SessionStore, home: str, when: float) -> None:
            for info in await store.list():
                if info.modified < when:
                    await delete_session(store, home, info.id)
    """
    await store.delete(session)
    await asyncio.to_thread(delete_local_files, Path(home), session)


async def require_no_writer(store: SessionStore, session: str) -> None:
    """Raise JournalBusy if a process is writing the session."""
    if writer := await store.find_writer(session):
        raise make_busy_error(writer, session)
