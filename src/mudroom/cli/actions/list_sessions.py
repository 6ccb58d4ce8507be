"""`mudroom runs` and `mudroom show`: list recorded sessions, and show one."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from ...errors import UnknownName
from ...journals.sessions import open_store, read_summary
from ...projections.run_tree import RunTree
from ...projections.safe_text import sanitize_line
from ...projections.session_summary import SessionSummary
from ..output.json_output import print_json
from ..output.progress import should_color
from ..output.text import choose_glyphs, format_tokens, truncate
from .load_settings import load_settings, require_folder
from .session_store import read_session, read_summaries_of_folder

WIDTH_WITHOUT_TERMINAL = 200
"""Columns of a line if stdout is not a terminal."""


def print_sessions(folder: str | None, *, as_json: bool, limit: int) -> int:
    """Print the newest sessions, at most `limit`, and return the exit code.

    Arguments:
        folder: only sessions of this folder, which may be deleted; None lists all.

    Raises UsageError if the folder neither exists nor has sessions.
    """
    home = load_settings(".").home
    summaries = asyncio.run(_read_summaries(home, folder, limit))
    if folder and not summaries:
        require_folder(folder)
    if as_json:
        print_json([_to_json(summary) for summary in summaries])
    elif not summaries:
        where = f" of {os.path.realpath(folder)}" if folder else ""
        print(f"No sessions{where} are recorded in {home} yet.")
    else:
        width = _get_width()
        for summary in summaries:
            print(truncate(_format_row(summary), width))
    return 0


async def _read_summaries(home: str, folder: str | None, limit: int) -> list[SessionSummary]:
    store = open_store(home)
    if folder:
        return await read_summaries_of_folder(store, folder, limit=limit)
    return [await read_summary(store, info) for info in (await store.list())[:limit]]


def _to_json(summary: SessionSummary) -> dict[str, object]:
    fields = asdict(summary)
    fields["trouble"] = fields.pop("error")  # the documented key
    return fields


def _format_row(summary: SessionSummary) -> str:
    time_text = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.when))
    start = f"{summary.id[:8]}  {time_text}"
    if summary.error:
        return f"{start}  {sanitize_line(summary.error)}"
    state = summary.reason if summary.state == "finished" else summary.state
    children = f"{summary.children} {'child' if summary.children == 1 else 'children'}"
    figures = f"{state:<11} {children:>11} {format_tokens(summary.tokens):>7} tokens"
    name = f"[{sanitize_line(summary.name)}] " if summary.name else ""
    title = f"{Path(summary.folder).name}: {name}{sanitize_line(summary.prompt)}"
    return f"{start}  {figures}  {title}"


def print_session(name: str, run_id: str | None, *, no_color: bool = False) -> int:
    """Print the run tree, ledger and transcripts of a session, and return the exit code.

    Arguments:
        name: id, beginning of an id, name, or "last" for the last session of this folder.
        run_id: print only the transcript of this run.

    Raises UnknownName for the session or the run, JournalError if it cannot be read.
    """
    settings = load_settings(".", color="never" if no_color else None)
    _, events = asyncio.run(read_session(settings.home, name))
    tree = RunTree.from_events(events)
    if run_id is not None and run_id not in tree.runs:
        raise UnknownName("run", run_id, tree.runs)
    from ..output.transcript_lines import render_transcript, render_tree

    style: dict[str, Any] = {
        "columns": _get_width(),
        "color": should_color(sys.stdout, settings.color),
        "glyphs": choose_glyphs(sys.stdout.encoding),
    }
    print(render_tree(events, **style))
    for shown_id in [run_id] if run_id else [root.run_id for root in tree.roots]:
        print(render_transcript(events, shown_id, **style))
    return 0


def _get_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
