"""Sessions that were recorded: the list of them, and one of them shown."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..._core.events import SessionOpened, StoredEvent
from ...errors import JournalError, UnknownName, UsageError
from ...journals.sqlite.lock import writer_pid
from ...journals.sqlite.reader import open_reader
from ...journals.sqlite.session_names import find_session
from ...journals.sqlite.store import SessionInfo, list_sessions
from ...projections.run_tree import RunTree
from ...projections.safe_text import sanitize_line
from ..output.progress import should_color
from ..output.text import choose_glyphs, format_tokens, truncate

WIDTH_WITHOUT_TERMINAL = 200
"""Columns of a line where there is no terminal."""


class Summary(Struct, frozen=True, kw_only=True):
    """One session in a list.

    Arguments:
        id, folder, model: of the session. when: last written, seconds since 1970. prompt: its first.
        reason: of its last run below nobody, "" while that runs or where it was cut off.
        prompts: how many it was given. children: runs below them. tokens: read and written, all runs.
        name: given by a person. state: "live" while a process writes it, "interrupted" when a run has no end, else "finished".
        trouble: why its record cannot be read.
    """

    id: str
    when: float
    folder: str = ""
    model: str = ""
    prompt: str = ""
    reason: str = ""
    prompts: int = 0
    children: int = 0
    tokens: int = 0
    name: str = ""
    state: str = ""
    trouble: str = ""


def iterate_sessions(home: str) -> Iterator[SessionInfo]:
    """The sessions below `home`, newest first. Raises JournalError when the folder cannot be read."""
    try:
        yield from list_sessions(home)
    except OSError as error:
        remedy = "Set MUDROOM_HOME to a folder of your own."
        raise JournalError(
            f"the records cannot be listed: {error.strerror}", where=home, remedy=remedy
        ) from None


def summarize_session(info: SessionInfo) -> Summary:
    """A session's record in one line; a record that cannot be read says so and stops nothing."""
    try:
        record = open_reader(info.path)
        return _folded(info, record.meta.name, record.read())
    except JournalError as error:
        return Summary(id=info.id, when=info.mtime, trouble=str(error))


def _folded(info: SessionInfo, name: str, events: Iterable[StoredEvent]) -> Summary:
    tree, folder = RunTree(), ""
    for event in events:
        if isinstance(event, SessionOpened):
            folder = event.cwd
        tree.apply(event)
    roots, last = tree.roots, tree.roots[-1] if tree.roots else None
    return Summary(
        id=info.id,
        when=info.mtime,
        folder=folder,
        model=roots[0].model if roots else "",
        prompt=roots[0].prompt if roots else "",
        reason=last.report.reason.value if last and last.report else "",
        prompts=len(roots),
        children=len(tree.runs) - len(roots),
        tokens=sum(root.total_usage.total_tokens for root in roots),
        name=name,
        state="live"
        if writer_pid(info.path)
        else "finished"
        if all(root.report for root in roots)
        else "interrupted",
    )


def print_sessions(home: str, *, as_json: bool, limit: int) -> int:
    """Print the newest sessions; the exit code. `limit`: how many."""
    found = [summarize_session(info) for info in islice(iterate_sessions(home), limit)]
    if as_json:
        print(
            json.dumps(
                msgspec.to_builtins([msgspec.structs.asdict(item) for item in found]),
                ensure_ascii=False,
                indent=2,
            )
        )
    elif not found:
        print(f"No sessions are recorded in {home} yet.")
    else:
        width = _width()
        for item in found:
            print(truncate(_row(item), width))
    return 0


def _row(item: Summary) -> str:
    head = f"{item.id[:8]}  {time.strftime('%Y-%m-%d %H:%M', time.localtime(item.when))}"
    if item.trouble:
        return f"{head}  {sanitize_line(item.trouble)}"
    children = f"{item.children} {'child' if item.children == 1 else 'children'}"
    figures = f"{item.state if item.state != 'finished' else item.reason:<11} {children:>11} {format_tokens(item.tokens):>7} tokens"
    return f"{head}  {figures}  {Path(item.folder).name}: {f'[{sanitize_line(item.name)}] ' if item.name else ''}{sanitize_line(item.prompt)}"


def print_session(home: str, name: str, run_id: str | None, *, color: str) -> int:
    """Print one session: its tree and ledger, or the transcript of one of its runs; the exit code.

    Arguments:
        name: its id, the beginning of it, or "last". run_id: the run whose transcript is wanted.

    Raises UnknownName: no such session or run. JournalError: its record cannot be read.
    """
    events = list(open_reader(_path(home, name)).read())
    tree = RunTree()
    for event in events:
        tree.apply(event)
    if run_id is not None and run_id not in tree.runs:
        raise UnknownName("run", run_id, tree.runs)
    from ..output.transcript_lines import render_transcript, render_tree

    look: dict[str, Any] = {
        "columns": _width(),
        "color": should_color(sys.stdout, color),
        "glyphs": choose_glyphs(sys.stdout.encoding),
    }
    print(render_tree(events, **look))
    for each in [run_id] if run_id else [root.run_id for root in tree.roots]:
        print(render_transcript(events, each, **look))
    return 0


def _path(home: str, name: str) -> Path:
    if name != "last":
        return find_session(home, name)
    newest = next(iterate_sessions(home), None)
    if newest is None:
        raise UsageError("no session is recorded yet", where=home)
    return newest.path


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
