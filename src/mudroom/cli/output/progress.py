"""Which screen shows a run: a live tree on a terminal, plain lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TextIO

from ..._core.events import AnyEvent
from ...projections.run_tree import RunTree
from ...projections.safe_text import sanitize
from .live_tree import LiveTree
from .plain_progress import PlainProgress
from .text import wrap


def print_notice(text: str, *, prefix: str = "mudroom: ") -> None:
    """One remark on stderr, at a terminal broken between words; a stderr that nobody reads is no reason to fail."""
    words = f"{prefix}{sanitize(text)}"
    try:
        if sys.stderr.isatty():
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            words = "\n".join(part for line in words.split("\n") for part in wrap(line, columns))
        print(words, file=sys.stderr, flush=True)
    except OSError:
        pass


def discard_stdout() -> None:
    """Let what is still to be written to stdout go nowhere, so that nothing fails again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def supports_escapes(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that obeys escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def supports_cursor(stream: TextIO) -> bool:
    """Whether the cursor may be moved there: on a terminal that is drawn on, and not where only a log is kept (CI)."""
    return supports_escapes(stream) and not os.environ.get("CI")


def should_color(stream: TextIO, color: str) -> bool:
    """Whether to colour what goes to `stream`. `color`: "always", "never" or "auto", which is on a terminal."""
    return color == "always" or (color == "auto" and supports_escapes(stream))


class ProgressScreen:
    """A `with` block around one run that shows it on stderr; `apply` takes its events.

    Arguments:
        color: see `colored`. verbose: a line for each call where there is no live tree.
        quiet: show nothing. plain: lines even where a tree could be drawn.
    """

    def __init__(
        self, color: str, *, verbose: bool = False, quiet: bool = False, plain: bool = False
    ) -> None:
        self._stack, self._shown = (
            ExitStack(),
            None if quiet else self._choose(color, verbose, plain),
        )

    def __enter__(self) -> ProgressScreen:
        if isinstance(self._shown, LiveTree):
            self._stack.enter_context(self._shown)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def apply(self, event: AnyEvent) -> None:
        """Take in an event."""
        if self._shown:
            self._shown.on_event(event)

    def show_pending(self, pending: Callable[[], str]) -> None:
        """Show the end of the words that stream. `pending` gives it."""
        if isinstance(self._shown, LiveTree):
            self._shown.pending = pending

    def print_answer(self, put: Callable[[], object]) -> None:
        """Have `put` write words of the root run to the terminal, clear of what is drawn there."""
        if isinstance(self._shown, LiveTree):
            self._shown.print_answer(put)
        else:
            put()

    def apply_past(self, event: AnyEvent) -> None:
        """Take in an event of the past, without a word."""
        if self._shown:
            self._shown.tree.apply(event)

    def print_notices(self, notices: Iterable[str]) -> None:
        """Say what the person should know before the run begins."""
        if self._shown:
            for notice in notices:
                print_notice(notice)

    @staticmethod
    def _choose(color: str, verbose: bool, plain: bool) -> LiveTree | PlainProgress:
        if supports_cursor(sys.stderr) and not plain:
            return LiveTree(sys.stderr, RunTree(), color=should_color(sys.stderr, color))
        return PlainProgress(sys.stderr, RunTree(), verbose=verbose)
