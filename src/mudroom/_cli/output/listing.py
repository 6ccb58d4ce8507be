"""Listings on stdout: rows in columns, and entries, as wide as the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import chain

from ..._projections.safe_text import sanitize
from .text import measure_width, truncate, wrap, wrap_hanging

# Columns; with fewer left beside its row, text goes below the row.
MIN_TEXT_COLUMNS = 24
_INDENT = 4
# Replaces a space at which a line must not wrap.
_FIXED_SPACE = "\xa0"


def get_listing_columns() -> int:
    """Return the stdout terminal's width; 0 if it is not a terminal, so that no line wraps."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    print("\n".join(format_rows(rows, get_listing_columns())))


def print_entry(text: str, *, indent: int = _INDENT) -> None:
    print(format_entry(text, get_listing_columns(), indent=indent))


def format_rows(rows: Sequence[tuple[str, ...]], columns: int) -> list[str]:
    """Format rows as lines; `columns` 0 means one line per row.

    A row's last cell may wrap.
    """
    widths = [max(map(measure_width, cells)) for cells in zip(*rows, strict=True)]
    needed = min(MIN_TEXT_COLUMNS, widths[-1])
    return [
        line
        for row in rows
        for line in format_row(row, widths[:-1], columns, min_text_columns=needed)
    ]


def format_row(
    row: Sequence[str],
    widths: Sequence[int],
    columns: int,
    *,
    min_text_columns: int = MIN_TEXT_COLUMNS,
    is_text_cut: bool = False,
) -> Iterator[str]:
    """Yield the lines of one row.

    `widths` omits the last cell, `columns` 0 means one line, and `is_text_cut` cuts the last
    cell to one line.
    """
    *cells, text = (sanitize(cell) for cell in row)
    padded = [
        cell + " " * (width - measure_width(cell))
        for cell, width in zip(cells, widths, strict=True)
    ]
    start = "  ".join(padded) + "  "
    room = columns - measure_width(start)
    if not is_text_cut:
        # Keep paths and addresses whole, so that they can be copied.
        paths = (len(word) for word in text.split() if word.isascii())
        min_text_columns = max(min_text_columns, *paths, 0)
    if columns and room < min_text_columns:
        yield from _format_stacked(cells, text, columns, is_text_cut=is_text_cut)
        return
    if not columns or is_text_cut:
        lines = [truncate(text, room) if columns else text]
    else:
        lines = wrap(text, room, keeps_words=True)
    for line in lines:
        yield (start + line).rstrip()
        start = " " * measure_width(start)


def _format_stacked(
    cells: Sequence[str], text: str, columns: int, *, is_text_cut: bool
) -> Iterator[str]:
    """Yield a row's cells with its text below them; a short row stays on one line."""
    words = [cell.strip().replace(" ", _FIXED_SPACE) for cell in cells if cell.strip()]
    line = "  ".join([*words, text])
    if measure_width(line) <= columns and not is_text_cut:
        yield line.replace(_FIXED_SPACE, " ").rstrip()
        return
    if words:
        for part in wrap_hanging("  ".join(words), columns, _INDENT, keeps_words=True):
            yield part.replace(_FIXED_SPACE, " ").rstrip()
    room = columns - _INDENT
    for part in [truncate(text, room)] if is_text_cut else wrap(text, room, keeps_words=True):
        yield " " * _INDENT + part


def format_entry(text: str, columns: int, *, indent: int = _INDENT) -> str:
    """Wrap text between words, keeping long paths whole. `columns` 0 means no limit."""
    lines = sanitize(text).split("\n")
    if not columns:
        return "\n".join(lines)
    parts = (wrap_hanging(line, columns, indent, keeps_words=True) for line in lines)
    return "\n".join(chain.from_iterable(parts))
