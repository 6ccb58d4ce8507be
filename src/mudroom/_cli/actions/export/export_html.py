"""Exports one session to one file, as HTML, Markdown or text, with secrets removed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...._adapters.journals.sessions import read_events
from ...._adapters.output_filters import Redactor
from ...._core.events import decode_event, encode_event
from ...._projections.run_tree import RunTree
from ...._viewer.export import render_single_file
from ...._viewer.sources import EventPage, SessionSource, StoredSessions
from ...._viewer.work import WorkPage, WorkQuery
from ...output.progress import print_notice
from ...output.session_markdown import render_session_markdown
from ...output.transcript_lines import render_transcripts, render_tree
from ..load_settings import load_settings
from ..serve_viewer import select_source
from ..user_store import open_store
from .export_session import STDOUT, check_target_file, redact_events, redact_fields


def export_html(name: str, target: str, *, store: str | None = None) -> int:
    """Write a page with one session, secrets removed.

    Arguments:
        name: see `select_source`. target: a file, or STDOUT. store: see `serve_viewer`.
    """
    home = load_settings(".", store=store).home
    source, session_id = asyncio.run(select_source(home, name or "last"))
    pieces = render_single_file(_RedactedSource(source), session_id)
    if target == STDOUT:
        asyncio.run(_write(sys.stdout.buffer, pieces))
        return 0
    check_target_file(target)
    path = Path(target)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # private to the user
    with open(descriptor, "wb") as file:
        asyncio.run(_write(file, pieces))
    size = path.stat().st_size
    print_notice(f"{path} ({size:,} bytes) shows session {session_id[:8]}; it needs no server.")
    return 0


async def render_session(home: str, session_id: str, suffix: str) -> AsyncIterator[str]:
    """Yield a session as text, secrets removed.

    Arguments:
        suffix: of the target file: ".html" is the viewer's page, ".md" is Markdown, anything else
            is plain text.
    """
    if suffix == ".html":
        source = _RedactedSource(StoredSessions(open_store(home), home))
        async for piece in render_single_file(source, session_id):
            yield piece
        return
    stored = await read_events(open_store(home), session_id)
    events = list(redact_events(stored, Redactor(os.environ)))
    if suffix == ".md":
        yield "".join(render_session_markdown(events))
        return
    yield render_tree(events, columns=120)
    tree = RunTree.from_events(events)
    roots = [root.run_id for root in tree.roots]
    for transcript in render_transcripts(tree, events, roots, full=True):
        yield f"\n{transcript}"


class _RedactedSource:
    """Removes secrets from a source, whose events leave this machine."""

    def __init__(self, source: SessionSource) -> None:
        self.list_sessions = source.list_sessions
        self.list_ids = source.list_ids
        self.read_change_stamp = source.read_change_stamp
        self._source = source
        self._redact = Redactor(os.environ)

    async def read_page(self, session: str, after: int) -> EventPage:
        page = await self._source.read_page(session, after)
        events = redact_events((decode_event(body) for _, body in page.events), self._redact)
        redacted = [
            (position, encode_event(event))
            for (position, _), event in zip(page.events, events, strict=True)
        ]
        return EventPage(redacted, page.has_more, page.error)

    async def read_work(self, session: str, query: WorkQuery) -> WorkPage:
        page = await self._source.read_work(session, query)
        return msgspec.convert(redact_fields(page, self._redact), WorkPage)


async def _write(file: BinaryIO, pieces: AsyncIterator[str]) -> None:
    async for piece in pieces:
        file.write(piece.encode("utf-8", "replace"))
