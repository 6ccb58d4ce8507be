"""Which screen shows a run: a live tree on a terminal, plain lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TextIO

from ..._core.events import AnyEvent
from ...projections.run_tree import Tree
from ...projections.safe_text import clean
from .live_tree import LiveTree
from .plain_progress import PlainProgress
from .text import broken


def say(text: str, *, prefix: str = "mudroom: ") -> None:
    """One remark on stderr, at a terminal broken between words; a stderr that nobody reads is no reason to fail."""
    words = f"{prefix}{clean(text)}"
    try:
        if sys.stderr.isatty():
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            words = "\n".join(part for line in words.split("\n") for part in broken(line, columns))
        print(words, file=sys.stderr, flush=True)
    except OSError:
        pass


def silence() -> None:
    """Let what is still to be written to stdout go nowhere, so that nothing fails again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def drawable(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that obeys escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def movable(stream: TextIO) -> bool:
    """Whether the cursor may be moved there: on a terminal that is drawn on, and not where only a log is kept (CI)."""
    return drawable(stream) and not os.environ.get("CI")


def colored(stream: TextIO, color: str) -> bool:
    """Whether to colour what goes to `stream`. `color`: "always", "never" or "auto", which is on a terminal."""
    return color == "always" or (color == "auto" and drawable(stream))


class Screen:
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

    def __enter__(self) -> Screen:
        if isinstance(self._shown, LiveTree):
            self._stack.enter_context(self._shown)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def apply(self, event: AnyEvent) -> None:
        """Take in an event."""
        if self._shown:
            self._shown.on_event(event)

    def speaks(self, pending: Callable[[], str]) -> None:
        """Show the end of the words that stream. `pending` gives it."""
        if isinstance(self._shown, LiveTree):
            self._shown.pending = pending

    def say(self, put: Callable[[], object]) -> None:
        """Have `put` write words of the root run to the terminal, clear of what is drawn there."""
        if isinstance(self._shown, LiveTree):
            self._shown.say(put)
        else:
            put()

    def recall(self, event: AnyEvent) -> None:
        """Take in an event of the past, without a word."""
        if self._shown:
            self._shown.tree.apply(event)

    def notices(self, notices: Iterable[str]) -> None:
        """Say what the person should know before the run begins."""
        if self._shown:
            for notice in notices:
                say(notice)

    @staticmethod
    def _choose(color: str, verbose: bool, plain: bool) -> LiveTree | PlainProgress:
        if movable(sys.stderr) and not plain:
            return LiveTree(sys.stderr, Tree(), color=colored(sys.stderr, color))
        return PlainProgress(sys.stderr, Tree(), verbose=verbose)
