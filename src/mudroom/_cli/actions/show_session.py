"""`mudroom show`: prints a recorded session, or what the model knew at one of its turns."""

from __future__ import annotations

import asyncio
import os
import sys

from ..._adapters.journals.sessions import read_events, stream_events
from ..._adapters.output_filters import Redactor
from ..._core.events import Compacted, MessageDelivered, ResultsCleared, RunStarted, StoredEvent
from ..._core.ports import SessionStore
from ..._core.runs import is_child_id
from ..._projections.context_size import ContextReceipts, describe_receipt, parse_turn_name
from ..._projections.run_tree import RunTree
from ..._projections.safe_text import redact_event, sanitize_line
from ..._projections.team import normalize_name
from ...errors import UnknownName
from ..output.listing import print_rows
from ..output.progress import should_color
from ..output.standard_output import draw
from ..output.text import choose_glyphs
from ..output.transcript_lines import SessionText, TextStyle, render_transcripts
from .list_sessions import get_width
from .load_settings import load_settings
from .session_store import find_session
from .user_store import open_store


def print_session(
    name: str,
    run_id: str | None,
    turn_name: str | None = None,
    *,
    no_color: bool = False,
    store: str | None = None,
) -> None:
    """Print the run tree, ledger and transcripts of a session, or what the model knew at a turn.

    `run_id` selects one run's transcript, or those of a named child; `turn_name` is run and
    turn, such as "1.8". Raises UnknownName for the session or the run, UsageError for the turn,
    JournalError.
    """
    settings = load_settings(".", color="never" if no_color else None, store=store)
    sessions = open_store(settings.home)
    if turn_name is None:
        asyncio.run(_print_session(sessions, name, run_id, settings.color))
    else:
        asyncio.run(_print_context(sessions, name, *parse_turn_name(turn_name)))


async def _print_session(store: SessionStore, name: str, run_id: str | None, color: str) -> None:
    """Print a session while reading it, then the transcripts."""
    session_id = await find_session(store, ".", name)
    chosen = await _find_runs(store, session_id, run_id) if run_id is not None else []
    style = TextStyle(
        columns=get_width(),
        color=should_color(sys.stdout, color),
        glyphs=choose_glyphs(sys.stdout.encoding),
        wraps=sys.stdout.isatty(),
    )
    text = SessionText(style)
    shown: list[StoredEvent] = []
    redact = Redactor(os.environ)
    async for stored in stream_events(store, session_id):
        event = redact_event(stored, redact)
        if part := text.apply(event):
            draw(sys.stdout, part)
            sys.stdout.flush()
        # Keep only events whose transcripts follow: a large session must not fill the memory.
        if event.run in chosen or (run_id is None and not is_child_id(event.run)):
            shown.append(event)
    draw(sys.stdout, f"{text.finish()}\n")
    run_ids = chosen or [root.run_id for root in text.tree.roots]
    for transcript in render_transcripts(text.tree, shown, run_ids, style):
        draw(sys.stdout, f"{transcript}\n")


async def _print_context(store: SessionStore, name: str, run: str, turn: int) -> None:
    session_id = await find_session(store, ".", name)
    # For a named child, the newest run.
    run = (await _find_runs(store, session_id, run))[-1]
    receipts = ContextReceipts()
    kinds = (RunStarted, MessageDelivered, ResultsCleared, Compacted)
    for event in await read_events(store, session_id, kinds):
        receipts.apply(event)
    rows = describe_receipt(receipts.find(run, turn))
    print_rows([(title, sanitize_line(text)) for title, text in rows])


async def _find_runs(store: SessionStore, session_id: str, name: str) -> list[str]:
    """Find the run with this id, or a named child's runs. Raises UnknownName."""
    tree = RunTree.from_events(await read_events(store, session_id, (RunStarted,)))
    if name in tree.runs:
        return [name]
    runs = [run.run_id for run in tree.runs.values() if run.name == normalize_name(name)]
    if not name or not runs:
        raise UnknownName("run", name, tree.runs)
    return runs
