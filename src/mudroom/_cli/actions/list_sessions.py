"""`mudroom runs`: list recorded sessions."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable

from msgspec.structs import asdict

from ..._projections.reason_words import describe_reason
from ..._projections.safe_text import sanitize_line
from ..._projections.session_summary import SessionSummary
from ..output.json_output import print_json
from ..output.listing import format_row, print_entry
from ..output.text import format_costs, format_tokens
from .load_settings import load_settings, require_folder
from .user_store import describe_store, get_address, open_store

# Columns per line if stdout is not a terminal.
WIDTH_WITHOUT_TERMINAL = 200

# Widths of a session's columns: id, time, state, children, tokens.
_CELL_COLUMNS = (8, 16, 15, 11, 14)


def print_sessions(folder: str | None, *, as_json: bool, limit: int, store: str | None) -> None:
    """Print the newest sessions.

    Raises UsageError for a folder that does not exist and has no sessions.
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


def _read_summaries(
    home: str, folder: str | None, limit: int, show: Callable[[SessionSummary], None]
) -> list[SessionSummary]:
    if not get_address():  # avoids asyncio, a third of the time to the first line
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
