"""`mudroom view` and `mudroom export`: the run viewer, on a page of its own server or in one file."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from ...errors import UsageError
from ...journals.encoding import decode, encode
from ...journals.sqlite.reader import open_reader
from ...journals.sqlite.store import session_path
from ...output_filters.redaction import Redactor
from ...viewer.export import render_single_file
from ...viewer.sources import EventPage, SessionSource, SingleSession, StoredSessions
from ..output.progress import print_notice
from ..output.transcript_lines import render_transcript, render_tree
from .export import redact_events, render_markdown
from .list_sessions import iterate_sessions
from .select_session import find_session, sessions_of_folder


def serve_viewer(home: str, name: str, *, foreign: str, host: str, port: int, open_it: bool) -> int:
    """Serve the viewer until it is interrupted; the exit code.

    Arguments:
        name: a session's id, the beginning of one, its name, or "last"; "" is the last of this folder, else the last of all.
            With `foreign` it is a path.
        foreign: whose log `name` is: "claude", "codex", or "" for a session of ours.
        host, port: as `viewer.server.viewer` has them. open_it: whether to open a browser, where there is a screen for one.
    """
    source, session = select_source(home, name, foreign)
    try:
        asyncio.run(_serve(source, session, host=host, port=port, open_it=open_it))
    except KeyboardInterrupt:
        pass
    return 0


def export_html(home: str, name: str, target: str, *, foreign: str = "") -> int:
    """Write the page with one session in it, without its secrets, to a file, "-" for stdout; the exit code."""
    source, session = select_source(home, name or "last", foreign)
    pieces = render_single_file(_Redacted(source), session)
    if target == "-":
        _write(sys.stdout.buffer, pieces)
        return 0
    path = Path(target)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
    ) as file:  # a record is nobody else's business
        _write(file, pieces)
    print_notice(
        f"{path} ({path.stat().st_size:,} bytes) shows session {session[:8]}; it needs no server."
    )
    return 0


def render_session(home: str, session: str, suffix: str) -> Iterator[str]:
    """A session for a file of that suffix, without its secrets: ".html" is the page, ".md" Markdown, any other plain text."""
    if suffix == ".html":
        yield from render_single_file(_Redacted(StoredSessions(home)), session)
        return
    events = list(
        redact_events(open_reader(session_path(home, session)).read(), Redactor(os.environ))
    )
    if suffix == ".md":
        yield from render_markdown(events)
        return
    yield render_tree(events, columns=120)
    for run in dict.fromkeys(event.run for event in events if event.run and "." not in event.run):
        yield "\n" + render_transcript(events, run, full=True)


def select_source(home: str, name: str, foreign: str = "") -> tuple[SessionSource, str]:
    """What to show, and which session of it; "" is the list.

    Raises UnknownName, UsageError.
    """
    if foreign:
        from ... import importers as logs

        if not name or not os.path.exists(name):
            raise UsageError(
                "there is no such log",
                where=name,
                remedy=f"Name a file or folder of {foreign.title()}'s.",
            )
        session, events = (logs.read_claude_log if foreign == "claude" else logs.read_codex_log)(
            Path(name)
        )
        return SingleSession(session, events), session
    if name:
        return StoredSessions(home), find_session(home, ".", name).stem
    newest = next(sessions_of_folder(home, "."), None) or next(iterate_sessions(home), None)
    return StoredSessions(home), newest.id if newest else ""


class _Redacted:
    """A source whose events leave this machine."""

    def __init__(self, source: SessionSource) -> None:
        self.list_sessions = source.list_sessions
        self.read_change_stamp = source.read_change_stamp
        self._source, self._redact = source, Redactor(os.environ)

    def read_page(self, session: str, after: int) -> EventPage:
        """Events without secrets."""
        page = self._source.read_page(session, after)
        events = redact_events((decode(body) for _, body in page.events), self._redact)
        return EventPage(
            [(seq, encode(event)) for (seq, _), event in zip(page.events, events, strict=True)],
            page.more,
            page.error,
        )


async def _serve(
    source: SessionSource, session: str, *, host: str, port: int, open_it: bool
) -> None:
    from ...viewer.server import open_viewer

    async with open_viewer(source, host=host, port=port) as door:
        url = door.url + (f"#session={quote(session)}" if session else "")
        print(url, flush=True)
        print_notice("the viewer is at this address for as long as this runs; Ctrl-C ends it.")
        if open_it and can_open_browser(os.environ):
            await asyncio.to_thread(webbrowser.open, url)
        await asyncio.Event().wait()


def can_open_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether there is a screen for a browser: not far away over SSH, not on a machine without one."""
    if environ.get("SSH_CONNECTION") or environ.get("CI"):
        return False
    return platform in ("darwin", "win32") or bool(
        environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") or environ.get("WSL_DISTRO_NAME")
    )


def _write(file: BinaryIO, pieces: Iterable[str]) -> None:
    for piece in pieces:
        file.write(piece.encode("utf-8", "replace"))
