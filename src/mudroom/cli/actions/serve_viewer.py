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
from ...journals.sqlite.journal import read_only
from ...journals.sqlite.store import session_path
from ...output_filters.redaction import Redactor
from ...viewer.export import single_file
from ...viewer.sources import Given, Home, Page, Source
from ..output.progress import say
from ..output.transcript_lines import render_transcript, render_tree
from .export import markdown, redacted
from .list_sessions import recorded
from .select_session import found, of_folder


def viewing(home: str, name: str, *, foreign: str, host: str, port: int, open_it: bool) -> int:
    """Serve the viewer until it is interrupted; the exit code.

    Arguments:
        name: a session's id, the beginning of one, its name, or "last"; "" is the last of this folder, else the last of all.
            With `foreign` it is a path.
        foreign: whose log `name` is: "claude", "codex", or "" for a session of ours.
        host, port: as `viewer.server.viewer` has them. open_it: whether to open a browser, where there is a screen for one.
    """
    source, session = chosen(home, name, foreign)
    try:
        asyncio.run(_serve(source, session, host=host, port=port, open_it=open_it))
    except KeyboardInterrupt:
        pass
    return 0


def exporting(home: str, name: str, target: str, *, foreign: str = "") -> int:
    """Write the page with one session in it, without its secrets, to a file, "-" for stdout; the exit code."""
    source, session = chosen(home, name or "last", foreign)
    pieces = single_file(_Redacted(source), session)
    if target == "-":
        _write(sys.stdout.buffer, pieces)
        return 0
    path = Path(target)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
    ) as file:  # a record is nobody else's business
        _write(file, pieces)
    say(f"{path} ({path.stat().st_size:,} bytes) shows session {session[:8]}; it needs no server.")
    return 0


def pieces(home: str, session: str, suffix: str) -> Iterator[str]:
    """A session for a file of that suffix, without its secrets: ".html" is the page, ".md" Markdown, any other plain text."""
    if suffix == ".html":
        yield from single_file(_Redacted(Home(home)), session)
        return
    events = list(redacted(read_only(session_path(home, session)).read(), Redactor(os.environ)))
    if suffix == ".md":
        yield from markdown(events)
        return
    yield render_tree(events, columns=120)
    for run in dict.fromkeys(event.run for event in events if event.run and "." not in event.run):
        yield "\n" + render_transcript(events, run, whole=True)


def chosen(home: str, name: str, foreign: str = "") -> tuple[Source, str]:
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
        session, events = (logs.claude if foreign == "claude" else logs.codex)(Path(name))
        return Given(session, events), session
    if name:
        return Home(home), found(home, ".", name).stem
    newest = next(of_folder(home, "."), None) or next(recorded(home), None)
    return Home(home), newest.id if newest else ""


class _Redacted:
    """A source whose events leave this machine."""

    def __init__(self, source: Source) -> None:
        self.sessions, self.stamp = source.sessions, source.stamp
        self._source, self._redact = source, Redactor(os.environ)

    def page(self, session: str, after: int) -> Page:
        """Events without secrets."""
        page = self._source.page(session, after)
        events = redacted((decode(body) for _, body in page.events), self._redact)
        return Page(
            [(seq, encode(event)) for (seq, _), event in zip(page.events, events, strict=True)],
            page.more,
            page.trouble,
        )


async def _serve(source: Source, session: str, *, host: str, port: int, open_it: bool) -> None:
    from ...viewer.server import viewer

    async with viewer(source, host=host, port=port) as door:
        url = door.url + (f"#session={quote(session)}" if session else "")
        print(url, flush=True)
        say("the viewer is at this address for as long as this runs; Ctrl-C ends it.")
        if open_it and drawable(os.environ):
            await asyncio.to_thread(webbrowser.open, url)
        await asyncio.Event().wait()


def drawable(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether there is a screen for a browser: not far away over SSH, not on a machine without one."""
    if environ.get("SSH_CONNECTION") or environ.get("CI"):
        return False
    return platform in ("darwin", "win32") or bool(
        environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") or environ.get("WSL_DISTRO_NAME")
    )


def _write(file: BinaryIO, pieces: Iterable[str]) -> None:
    for piece in pieces:
        file.write(piece.encode("utf-8", "replace"))
