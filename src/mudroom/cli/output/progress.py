"""Progress on stderr: a live tree on a terminal, plain lines elsewhere, nothing in quiet mode."""

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
    """Print a notice on stderr, wrapped on a terminal. A closed stderr is ignored."""
    text = f"{prefix}{sanitize(text)}"
    try:
        if sys.stderr.isatty():
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            text = "\n".join(part for line in text.split("\n") for part in wrap(line, columns))
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def discard_stdout() -> None:
    """Redirect stdout to the null device, so that flushing it at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def supports_escapes(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal that understands escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def supports_cursor(stream: TextIO) -> bool:
    """Return whether the cursor of `stream` can be moved.

    False in CI, where a terminal is only a log.
    """
    return supports_escapes(stream) and not os.environ.get("CI")


def should_color(stream: TextIO, color: str) -> bool:
    """Return whether to use colors on `stream`.

    Arguments:
        color: "always", "never", or "auto" for colors on a terminal.
    """
    return color == "always" or (color == "auto" and supports_escapes(stream))


class ProgressScreen:
    """Progress of one run on stderr; a context manager.

    Arguments:
        color: see `should_color`.
        verbose: without a live tree, print a line for every tool call.
        quiet: print nothing.
        plain: print lines even if a tree could be drawn.
    """

    def __init__(
        self, color: str, *, verbose: bool = False, quiet: bool = False, plain: bool = False
    ) -> None:
        self._stack = ExitStack()
        self._screen: LiveTree | PlainProgress | None = None
        if quiet:
            return
        if supports_cursor(sys.stderr) and not plain:
            self._screen = LiveTree(sys.stderr, RunTree(), color=should_color(sys.stderr, color))
        else:
            self._screen = PlainProgress(sys.stderr, RunTree(), verbose=verbose)

    def __enter__(self) -> ProgressScreen:
        if isinstance(self._screen, LiveTree):
            self._stack.enter_context(self._screen)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def apply(self, event: AnyEvent) -> None:
        """Handle the next event."""
        if self._screen:
            self._screen.on_event(event)

    def show_pending(self, pending: Callable[[], str]) -> None:
        """Show the end of the streaming answer in the live tree.

        Arguments:
            pending: returns the text.
        """
        if isinstance(self._screen, LiveTree):
            self._screen.pending = pending

    def print_answer(self, put: Callable[[], object]) -> None:
        """Print text of the root run without overlapping the live tree.

        Arguments:
            put: writes the text.
        """
        if isinstance(self._screen, LiveTree):
            self._screen.print_answer(put)
        else:
            put()

    def apply_past(self, event: AnyEvent) -> None:
        """Handle a recorded event without printing anything."""
        if self._screen:
            self._screen.tree.apply(event)

    def print_notices(self, notices: Iterable[str]) -> None:
        """Print notices before the run starts, unless quiet."""
        if self._screen:
            for notice in notices:
                print_notice(notice)
