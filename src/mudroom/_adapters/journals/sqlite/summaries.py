"""Summaries of a state folder's sessions. Functions block: a list needs no event loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from ...._core.ports import SessionInfo
from ...._platform.paths import path_from_text
from ...._projections.session_summary import (
    SUMMARY_TYPES,
    SessionSummary,
    decode_state,
    find_folder,
    summarize_session,
)
from ....errors import JournalError
from .folder import find_writer_pid, get_session_path, list_sessions
from .reader import SqliteReader, read_header, read_valid_meta
from .schema import connect_briefly, connect_reader, translate_errors


def read_summaries(home: str, folder: str | None, limit: int) -> Iterator[SessionSummary]:
    """Yield the summaries of the most recently written sessions, at most `limit`.

    `folder` selects the sessions of one folder, even if the folder is gone.

    Raises JournalError if the sessions cannot be listed.
    """
    with translate_errors(Path(home)):
        infos = list_sessions(home)
    if folder is not None:
        real = os.path.realpath(folder)
        chosen = (info for info in infos if _read_folder(home, info) == real)
    else:
        chosen = iter(infos)
    for info in islice(chosen, limit):
        yield read_summary(home, info)


def read_summary(home: str, info: SessionInfo) -> SessionSummary:
    """Read the summary of a session; `error` is set if its journal cannot be read."""
    summary = SessionSummary(id=info.id, when=info.modified, size=info.size)
    path = get_session_path(Path(home).absolute(), info.id)
    is_live = bool(find_writer_pid(path))
    connect = connect_reader if is_live else connect_briefly
    try:
        with translate_errors(path), closing(connect(path)) as connection:
            meta = read_valid_meta(connection, path)
            summary = replace(summary, name=meta.name)
            state = decode_state(meta.summary)
            reader = SqliteReader(path, meta)
            events = list(reader.read_with(connection, state.position, SUMMARY_TYPES))
    except JournalError as error:
        return replace(summary, error=str(error))
    return summarize_session(summary, events, is_live=is_live, state=state)


def _read_folder(home: str, info: SessionInfo) -> str:
    try:
        meta, first = read_header(get_session_path(Path(home).absolute(), info.id))
    except JournalError:
        return ""
    return path_from_text(find_folder(first, meta.summary))
