"""Live tree of runs on a terminal: redrawn during a run, left on screen when it ends."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

from msgspec.structs import replace

from ..._core.events import AnyEvent
from ..._projections.run_tree import RunTree, list_idle
from ..._projections.run_view import RunState
from .progress import Progress
from .standard_output import draw
from .text import ERASE_DOWN, Line, choose_glyphs, measure_width, paint
from .tree_lines import TreeStyle, format_tree

# Minimum seconds between drawings. Nothing is written if nothing has changed.
DRAW_PERIOD = 0.125

# Share of one core that drawing may use; slow drawings are repeated less often.
MAX_CPU_SHARE = 0.03

# Runs shown at once; the others are counted.
MAX_RUNS = 12

# Idle named children shown; `/team` lists all.
MAX_IDLE = 5


class LiveTree(Progress):
    """A screen for one run. Events update the tree; a thread draws it."""

    def __init__(
        self,
        stream: TextIO,
        tree: RunTree,
        *,
        color: bool = True,
        now: Callable[[], float] = time.time,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(tree)
        self._stream = stream
        self._color = color
        self._now = now
        self._size = size or (lambda: _get_terminal_size(stream))
        self._glyphs = choose_glyphs(stream.encoding)
        self._text = ""
        self._row_widths: list[int] = []
        # Children of finished turns stay on screen above the answer and are not redrawn.
        self._printed_runs: set[str] = set()
        self._answered_turn: tuple[str, int] = ("", 0)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._draw_until_end, name="live tree", daemon=True)

    def __enter__(self) -> LiveTree:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.draw(final=True)

    def on_event(self, event: AnyEvent) -> None:
        self.tree.apply(event)

    def draw(self, *, final: bool = False) -> None:
        """Draw if anything has changed.

        The `final` drawing stays on screen. A run without children leaves nothing; one with
        children above its answer leaves its headline, with final figures.
        """
        with self._lock:
            self._draw(final=final)

    def print_answer(self, put: Callable[[], object]) -> None:
        """Print text of the root run below the tree drawn so far; draw later runs below it."""
        with self._lock:
            root = self.tree.roots[-1] if self.tree.roots else None
            if root and self._answered_turn != (root.run_id, root.turn):
                self._draw(final=True, is_snapshot=True)
                if self._row_widths:
                    self._write("\n")
                children = self.tree.children(root.run_id)
                self._printed_runs.update(child.run_id for child in children)
                self._answered_turn = (root.run_id, root.turn)
                self._text = ""
                self._row_widths = []
            else:
                self._erase()
            put()

    def print_above(self, put: Callable[[], object]) -> None:
        with self._lock:
            self._erase()
            put()

    def _erase(self) -> None:
        self._write(self._erase_sequence(self._size()[0]))
        self._text = ""
        self._row_widths = []

    def _draw(self, *, final: bool, is_snapshot: bool = False) -> None:
        columns, height = self._size()
        lines = self._format_lines(columns, height, final=final, is_snapshot=is_snapshot)
        if final and len(lines) <= 1 and (is_snapshot or not self._has_printed_children()):
            lines = []
        text = paint(lines, color=self._color)
        if text == self._text and not final:
            return
        self._write(self._erase_sequence(columns) + text)
        self._text = text
        self._row_widths = [sum(measure_width(part) for part, _ in line) for line in lines]

    def _has_printed_children(self) -> bool:
        runs = self.tree.roots[-1:]
        children = [child.run_id for run in runs for child in self.tree.children(run.run_id)]
        return not self._printed_runs.isdisjoint(children)

    def _format_lines(
        self, columns: int, height: int, *, final: bool, is_snapshot: bool
    ) -> list[Line]:
        if not self.tree.roots:
            return []
        root = self.tree.roots[-1]
        # Leave one column free: some terminals wrap once the last is written.
        columns = max(1, columns - 1)
        is_answered = self._answered_turn == (root.run_id, root.turn) and not root.open_calls
        is_over = final and not is_snapshot
        if is_answered and root.state is not RunState.WAITING and not is_over:
            return self.format_pending(columns, max(1, height - 1))
        idle = [] if final else list_idle(self.tree)[:MAX_IDLE]
        style = TreeStyle(
            columns=columns,
            max_runs=max(1, min(MAX_RUNS, (height - 4 - len(idle)) // 2)),
            now=self._now(),
            hidden_runs=self._printed_runs,
            idle=idle,
            is_snapshot=is_snapshot,
            glyphs=self._glyphs,
        )
        # A board's tasks are concurrent root runs.
        tasks = [each for each in self.tree.roots if each.depth and not each.report]
        lines: list[Line] = []
        for each in tasks[:-1]:
            lines += format_tree(self.tree, each, replace(style, idle=()))
        lines += format_tree(self.tree, tasks[-1] if tasks else root, style)
        return lines[: max(1, height - 1)]

    def _erase_sequence(self, columns: int) -> str:
        # A terminal made narrower has wrapped the old rows into more rows.
        rows = sum(max(1, -(-width // max(1, columns))) for width in self._row_widths)
        return f"\x1b[{rows}A\r{ERASE_DOWN}" if rows else ""

    def _draw_until_end(self) -> None:
        draw_seconds = 0.0
        while not self._ended.wait(max(DRAW_PERIOD, draw_seconds / MAX_CPU_SHARE)):
            started = time.thread_time()
            self.draw()
            draw_seconds = time.thread_time() - started

    def _write(self, text: str) -> None:
        try:
            draw(self._stream, text)
            self._stream.flush()
        except (OSError, ValueError):  # The terminal was closed; the run must continue.
            self._ended.set()


def _get_terminal_size(stream: TextIO) -> tuple[int, int]:
    try:
        return os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return shutil.get_terminal_size()
