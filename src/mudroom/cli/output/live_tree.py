"""The live tree: drawn on a terminal, at most eight times a second, while a run works, then left there once, as it ended."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

from ..._core.events import AnyEvent
from ...projections.run_tree import RunTree
from ...projections.safe_text import sanitize
from .text import Line, choose_glyphs, display_width, last_lines, paint
from .tree_lines import TreeStyle, format_tree

DRAW_PERIOD = 0.125
"""Least seconds between two looks at the tree; nothing is written when nothing has changed."""

MAX_CPU_SHARE = 0.03
"""Most of a core that drawing may take; a tree that is slow to draw is drawn less often."""

MAX_PENDING_LINES = 6
"""Lines shown of words that are still streaming."""

MAX_RUNS = 12
"""Most runs shown at once; more are folded into counts."""


class LiveTree:
    """A screen for one run: events go into the tree at once, a thread of its own draws it at leisure.

    Arguments:
        stream: the terminal, as a rule stderr. tree: what is drawn; `on_event` feeds it, nothing else need.
        color: whether to style the words. now: seconds since 1970.
        size: (columns, lines) of the terminal, asked before each drawing, so that a resize is followed.

    `pending` gives the end of the words that stream, to be shown until they are whole and said.

    Example:
        with LiveTree(sys.stderr, Tree()) as live:
            session.watch(live.on_event)
            report = await session.run(prompt)
    """

    def __init__(
        self,
        stream: TextIO,
        tree: RunTree,
        *,
        color: bool = True,
        now: Callable[[], float] = time.time,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.tree = tree
        self._stream, self._color, self._now = stream, color, now
        self._size = size or (lambda: _terminal(stream))
        self._signs = choose_glyphs(stream.encoding)
        self.pending: Callable[[], str] = str
        self._drawn: list[int] = []
        self._text = ""
        self._told, self._spoke = set[str](), ("", 0)
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._keep_drawing, name="live tree", daemon=True)

    def __enter__(self) -> LiveTree:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.draw(final=True)

    def on_event(self, event: AnyEvent) -> None:
        """Take in an event; costs no drawing."""
        self.tree.apply(event)

    def draw(self, *, final: bool = False) -> None:
        """Draw what has changed since the last time. `final` leaves it there; a run without children leaves nothing."""
        with self._lock:
            self._draw(final=final)

    def print_answer(self, put: Callable[[], object]) -> None:
        """Have `put` write words of the root run: what is drawn by then stays above them, and only what comes later is drawn below."""
        with self._lock:
            root = self.tree.roots[-1] if self.tree.roots else None
            if root and self._spoke != (root.run_id, root.turn):
                self._draw(final=True, left=True)
                self._write("\n" if self._drawn else "")
                self._told.update(child.run_id for child in self.tree.children(root.run_id))
                self._spoke = root.run_id, root.turn
            else:
                self._write(self._erasing(self._size()[0]))
            self._text, self._drawn = "", []
            put()

    def _draw(self, *, final: bool, left: bool = False) -> None:
        columns, height = self._size()
        lines = self._lines(columns, height, left=left)
        if final and len(lines) <= 1:
            lines = []
        text = paint(lines, color=self._color)
        if text == self._text and not final:
            return
        self._write(self._erasing(columns) + text)
        self._text, self._drawn = (
            text,
            [sum(display_width(words) for words, _ in line) for line in lines],
        )

    def _lines(self, columns: int, height: int, *, left: bool) -> list[Line]:
        if not self.tree.roots:
            return []
        root, room = self.tree.roots[-1], max(1, columns - 1)
        if self._spoke == (root.run_id, root.turn) and not root.open_calls:
            return [
                [(part, "")]
                for part in last_lines(sanitize(self.pending()), room, MAX_PENDING_LINES)
            ]
        limit = max(1, min(MAX_RUNS, (height - 4) // 2))
        look = TreeStyle(
            columns=room,
            max_runs=limit,
            now=self._now(),
            hidden_runs=self._told,
            is_snapshot=left,
            glyphs=self._signs,
        )
        return format_tree(self.tree, root, look)[: max(1, height - 1)]

    def _erasing(self, columns: int) -> str:
        """Back to the first line and clear. A terminal made narrower has broken the old lines: they take more rows now."""
        taken = sum(max(1, -(-wide // max(1, columns))) for wide in self._drawn)
        return f"\x1b[{taken}A\r\x1b[J" if taken else ""

    def _keep_drawing(self) -> None:
        spent = 0.0
        while not self._ended.wait(max(DRAW_PERIOD, spent / MAX_CPU_SHARE)):
            began = time.thread_time()
            self.draw()
            spent = time.thread_time() - began

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (
            OSError,
            ValueError,
        ):  # the terminal is gone; the run is worth more than its picture
            self._ended.set()


def _terminal(stream: TextIO) -> tuple[int, int]:
    try:
        return os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return shutil.get_terminal_size()
