"""`mudroom view` and exports to HTML: the run viewer on a local server or in one file."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..._core.ports import SessionStore
from ...errors import UsageError
from ...journals.encoding import decode, encode
from ...journals.sessions import read_events
from ...output_filters.redaction import Redactor
from ...projections.run_tree import RunTree
from ...viewer.export import render_single_file
from ...viewer.links import make_session_link
from ...viewer.sources import EventPage, SessionSource, SingleSession, StoredSessions
from ...viewer.work import WorkPage, WorkQuery
from ..output.progress import print_notice
from ..output.session_markdown import render_session_markdown
from ..output.transcript_lines import render_transcripts, render_tree
from .export.export_session import STDOUT, check_target_file, redact_events, redact_fields
from .load_settings import load_settings
from .session_store import find_session, list_sessions_of_folder
from .user_store import open_store


def serve_viewer(
    name: str,
    *,
    foreign: str,
    host: str,
    port: int,
    open_browser: bool,
    store: str | None = None,
) -> int:
    """Serve the viewer until it is interrupted and return the exit code.

    Arguments:
        name: session to show, see `select_source`. foreign: program whose log `name` is.
        host, port: see `viewer.server.open_viewer`.
        open_browser: open a browser if this machine can show one.
        store: address of the database with the sessions, None for that of the settings.
    """
    home = load_settings(".", store=store).home
    source, session_id = asyncio.run(select_source(home, name, foreign))
    try:
        asyncio.run(_serve(source, session_id, host=host, port=port, open_browser=open_browser))
    except KeyboardInterrupt:
        pass
    return 0


def export_html(name: str, target: str, *, foreign: str = "", store: str | None = None) -> int:
    """Write a page with one session, secrets removed, and return the exit code.

    Arguments:
        name, foreign: see `select_source`. target: a file, or STDOUT. store: see `serve_viewer`.
    """
    home = load_settings(".", store=store).home
    source, session_id = asyncio.run(select_source(home, name or "last", foreign))
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
        suffix: of the target file: ".html" is the viewer's page, ".md" is Markdown, any other is
            plain text.
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


async def select_source(home: str, name: str, foreign: str = "") -> tuple[SessionSource, str]:
    """Return the sessions to show, and the id of the one to open; "" opens the list.

    Arguments:
        name: a session's id, the beginning of one, its name, or "last"; "" is the last session of
            this folder, else the last of all. With `foreign` it is a path.
        foreign: program that wrote the log: "claude", "codex", or "" for a session of mudroom.

    Raises UnknownName, UsageError.
    """
    if foreign:
        return _load_foreign_log(name, foreign)
    store = open_store(home)
    return StoredSessions(store, home), await _choose_session(store, name)


async def _choose_session(store: SessionStore, name: str) -> str:
    if name:
        return await find_session(store, ".", name)
    async for info in list_sessions_of_folder(store, "."):
        return info.id
    infos = await store.list()
    return infos[0].id if infos else ""


def _load_foreign_log(path: str, program: str) -> tuple[SessionSource, str]:
    from ... import importers

    if not path or not os.path.exists(path):
        raise UsageError(
            "no such log", where=path, remedy=f"Name a log file or folder of {program.title()}."
        )
    read = importers.read_claude_log if program == "claude" else importers.read_codex_log
    session_id, events = read(Path(path))
    return SingleSession(session_id, events), session_id


class _RedactedSource:
    """A source without secrets, for events that leave this machine."""

    def __init__(self, source: SessionSource) -> None:
        self.list_sessions = source.list_sessions
        self.list_ids = source.list_ids
        self.read_change_stamp = source.read_change_stamp
        self._source = source
        self._redact = Redactor(os.environ)

    async def read_page(self, session: str, after: int) -> EventPage:
        """Return the events after position `after`, secrets removed."""
        page = await self._source.read_page(session, after)
        events = redact_events((decode(body) for _, body in page.events), self._redact)
        redacted = [
            (position, encode(event))
            for (position, _), event in zip(page.events, events, strict=True)
        ]
        return EventPage(redacted, page.has_more, page.error)

    async def read_work(self, session: str, query: WorkQuery) -> WorkPage:
        """Return what a run changed, secrets removed."""
        page = await self._source.read_work(session, query)
        return msgspec.convert(redact_fields(page, self._redact), WorkPage)


async def _serve(
    source: SessionSource, session_id: str, *, host: str, port: int, open_browser: bool
) -> None:
    from ...viewer.server import open_viewer

    async with open_viewer(source, host=host, port=port) as address:
        url = await make_session_link(address.url, source, session_id)
        print(url, flush=True)
        print_notice("Viewer running. Press Ctrl+C to stop.")
        if open_browser and can_open_browser(os.environ):
            await asyncio.to_thread(webbrowser.open, url)
        await asyncio.Event().wait()


def can_open_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether this machine has a screen for a browser: not over SSH, not in CI."""
    if environ.get("SSH_CONNECTION") or environ.get("CI"):
        return False
    if platform in ("darwin", "win32"):
        return True
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
    return any(environ.get(variable) for variable in screens)


async def _write(file: BinaryIO, pieces: AsyncIterator[str]) -> None:
    async for piece in pieces:
        file.write(piece.encode("utf-8", "replace"))
