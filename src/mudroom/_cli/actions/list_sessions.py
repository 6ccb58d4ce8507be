"""`mudroom runs` and `mudroom show`: list recorded sessions, and print one of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from ..._adapters.journals.sessions import read_events, stream_events
from ..._adapters.output_filters import Redactor
from ..._core.events import Compacted, MessageDelivered, ResultsCleared, RunStarted, StoredEvent
from ..._core.ports import SessionStore
from ..._core.runs import is_child_id
from ..._projections.context_size import ContextReceipts, describe_receipt, parse_turn_name
from ..._projections.reason_words import describe_reason
from ..._projections.run_tree import RunTree
from ..._projections.safe_text import redact_event, sanitize_line
from ..._projections.session_summary import SessionSummary
from ..._projections.team import normalize_name
from ...errors import UnknownName
from ..output.json_output import print_json
from ..output.listing import format_row, print_entry, print_rows
from ..output.progress import should_color
from ..output.standard_output import draw
from ..output.text import choose_glyphs, format_costs, format_tokens
from ..output.transcript_lines import SessionText, render_transcripts
from .load_settings import load_settings, require_folder
from .session_store import find_session
from .user_store import describe_store, is_database, open_store

# Columns of a line if stdout is not a terminal.
WIDTH_WITHOUT_TERMINAL = 200

# Columns of a session's cells: id, time, state, children, tokens.
_CELL_COLUMNS = (8, 16, 15, 11, 14)


def print_sessions(
    folder: str | None, *, as_json: bool, limit: int, store: str | None = None
) -> int:
    """Print the newest sessions, at most `limit`.

    Arguments:
        folder: only sessions of this folder, which may be deleted; None lists all.
        store: address of the database to list, None for the settings' store.

    Raises UsageError if the folder neither exists nor has sessions.
    """
    home = load_settings(".", store=store).home
    columns = get_width()

    def print_row(summary: SessionSummary) -> None:
        if not as_json:
            row = _make_cells(summary)
            lines = format_row(row, _CELL_COLUMNS[: len(row) - 1], columns, is_text_cut=True)
            print("\n".join(lines), flush=True)

    summaries = _read_summaries(home, folder, limit, print_row)
    if folder and not summaries:
        require_folder(folder)
    if as_json:
        print_json([_to_json(summary) for summary in summaries])
    elif not summaries:
        where = f" of {os.path.realpath(folder)}" if folder else ""
        print_entry(f"No sessions{where} are recorded in {describe_store(home)} yet.")
    return 0


def _read_summaries(
    home: str, folder: str | None, limit: int, show: Callable[[SessionSummary], None]
) -> list[SessionSummary]:
    """Read the newest summaries, and show each as soon as it is read."""
    if not is_database():  # without asyncio, which takes a third of the time to the first line
        from ..._adapters.journals.sqlite.summaries import read_summaries

        summaries: list[SessionSummary] = []
        for summary in read_summaries(home, folder, limit):
            summaries.append(summary)
            show(summary)
        return summaries
    import asyncio

    from .session_store import read_newest_summaries

    return asyncio.run(read_newest_summaries(open_store(home), folder, limit, show))


def _to_json(summary: SessionSummary) -> dict[str, object]:
    fields = asdict(summary)
    fields["trouble"] = fields.pop("error")  # the documented key
    return fields


def _make_cells(summary: SessionSummary) -> tuple[str, ...]:
    time_text = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.when))
    if summary.error:
        return (summary.id[:8], time_text, sanitize_line(summary.error))
    state = describe_reason(summary.reason) if summary.state == "finished" else summary.state
    children = f"{summary.children} {'child' if summary.children == 1 else 'children'}"
    costs = f"{format_costs(summary.usd)} · " if summary.usd else ""
    name = f"[{sanitize_line(summary.name)}] " if summary.name else ""
    return (
        summary.id[:8],
        time_text,
        state,
        f"{children:>11}",
        f"{format_tokens(summary.tokens):>7} tokens",
        f"{costs}{os.path.basename(summary.folder)}: {name}{sanitize_line(summary.topic)}",
    )


def get_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL


def print_session(
    name: str, run_id: str | None, *, no_color: bool = False, store: str | None = None
) -> int:
    """Print the run tree, ledger and transcripts of a session.

    Arguments:
        name: id, beginning of an id, name, or "last" for the last session of this folder.
        run_id: print only the transcript of this run, or of the runs of this named child.

    Raises UnknownName for the session or the run, JournalError if it cannot be read.
    """
    settings = load_settings(".", color="never" if no_color else None, store=store)
    asyncio.run(_print_session(open_store(settings.home), name, run_id, settings.color))
    return 0


async def _print_session(store: SessionStore, name: str, run_id: str | None, color: str) -> None:
    """Print a session while it is read, then the transcripts."""
    session_id = await find_session(store, ".", name)
    chosen = await _find_runs(store, session_id, run_id) if run_id is not None else []
    style: dict[str, Any] = {
        "columns": get_width(),
        "color": should_color(sys.stdout, color),
        "glyphs": choose_glyphs(sys.stdout.encoding),
        "wraps": sys.stdout.isatty(),
    }
    text = SessionText(**style)
    shown: list[StoredEvent] = []
    redact = Redactor(os.environ)
    async for stored in stream_events(store, session_id):
        event = redact_event(stored, redact)
        if part := text.apply(event):
            draw(sys.stdout, part)
            sys.stdout.flush()
        # Only the events whose transcripts follow: a large session must not fill the memory.
        if event.run in chosen or (run_id is None and not is_child_id(event.run)):
            shown.append(event)
    draw(sys.stdout, f"{text.finish()}\n")
    run_ids = chosen or [root.run_id for root in text.tree.roots]
    for transcript in render_transcripts(text.tree, shown, run_ids, **style):
        draw(sys.stdout, f"{transcript}\n")


def print_context(name: str, turn_name: str, *, store: str | None = None) -> int:
    """Print what the model knew at a turn of a session.

    Arguments:
        name: see `print_session`. turn_name: run and turn, such as "1.8".

    Raises UsageError for the turn, UnknownName for the session or the run, JournalError.
    """
    run, turn = parse_turn_name(turn_name)
    home = load_settings(".", store=store).home
    rows = asyncio.run(_read_receipt(open_store(home), name, run, turn))
    print_rows([(title, sanitize_line(text)) for title, text in rows])
    return 0


async def _read_receipt(
    store: SessionStore, name: str, run: str, turn: int
) -> list[tuple[str, str]]:
    session_id = await find_session(store, ".", name)
    # Of a named child, the newest run.
    run = (await _find_runs(store, session_id, run))[-1]
    receipts = ContextReceipts()
    kinds = (RunStarted, MessageDelivered, ResultsCleared, Compacted)
    for event in await read_events(store, session_id, kinds):
        receipts.apply(event)
    return describe_receipt(receipts.find(run, turn))


async def _find_runs(store: SessionStore, session_id: str, name: str) -> list[str]:
    """Return the run with an id, or the runs of a named child. Raises UnknownName."""
    tree = RunTree.from_events(await read_events(store, session_id, (RunStarted,)))
    if name in tree.runs:
        return [name]
    runs = [run.run_id for run in tree.runs.values() if run.name == normalize_name(name)]
    if not name or not runs:
        raise UnknownName("run", name, tree.runs)
    return runs
