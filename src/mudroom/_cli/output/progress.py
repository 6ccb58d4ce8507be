"""Progress on stderr: interface, notices, and the terminal's abilities."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from ..._core.events import AnyEvent
from ..._projections.run_tree import RunTree
from ..._projections.safe_text import sanitize
from .standard_output import draw
from .text import Line, paint, wrap

if TYPE_CHECKING:
    from typing import Self


def print_notice(text: str, *, prefix: str = "mudroom: ") -> None:
    """Print a notice on stderr, wrapped on a terminal. A closed stderr is ignored."""
    text = f"{prefix}{sanitize(text)}"
    with suppress(OSError):
        if sys.stderr.isatty():
            columns = _get_columns()
            text = "\n".join(part for line in text.split("\n") for part in wrap(line, columns))
        print(text, file=sys.stderr, flush=True)


def make_notice_printer(*, quiet: bool, once: bool = False) -> Callable[[str], None]:
    shown: set[str] = set()

    def show(text: str) -> None:
        if not (quiet or (once and text in shown)):
            shown.add(text)
            print_notice(text)

    return show


def print_ledger(text: str, *, color: bool) -> None:
    """Print the ledger on stderr; with color, as a block that stands out."""
    if not color:
        print_notice(text, prefix="")
        return
    columns = max(20, _get_columns())
    lines: list[Line] = [[(part, "bold green")] for part in wrap(sanitize(text), columns - 1)]
    rule: Line = [("─" * min(columns - 1, 60), "green")]
    with suppress(OSError):
        draw(sys.stderr, f"\n{paint([rule, *lines], color=True)}")
        sys.stderr.flush()


def _get_columns() -> int:
    """Return the stderr terminal's width; 80 if it is not a terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def supports_escapes(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def supports_cursor(stream: TextIO) -> bool:
    # In CI, a terminal is only a log.
    return supports_escapes(stream) and not os.environ.get("CI")


def should_color(stream: TextIO, color: str) -> bool:
    return color == "always" or (color == "auto" and supports_escapes(stream))


class Progress:
    """One run's progress, as a context manager. The base class shows nothing."""

    def __init__(self, tree: RunTree) -> None:
        self.tree = tree
        # Formats the end of the streaming answer, in rows that fit, until it is printed.
        self.format_pending: Callable[[int, int], list[Line]] = lambda columns, height: []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def on_event(self, event: AnyEvent) -> None:
        pass

    def print_above(self, put: Callable[[], object]) -> None:
        put()

    def print_answer(self, put: Callable[[], object]) -> None:
        """Print the root run's text where no progress is drawn."""
        put()
