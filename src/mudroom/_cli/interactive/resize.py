"""Redraws the prompt correctly after the terminal was resized and re-wrapped its rows."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Char, Screen
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer

from ..output.text import ERASE_DOWN

# Without another width for this long, a resize is over. While a window is dragged, tmux reports a
# new width four times a second.
SETTLE_SECONDS = 0.4

# Cells of one drawn row by column.
Row = dict[int, Char]


class StableOutput(Vt100_Output):
    """Terminal output with one size per drawing."""

    _held_size: Size | None = None

    @contextmanager
    def hold_size(self) -> Generator[Size]:
        """Read the size once and return the same size until the block ends."""
        # A window may be resized while a drawing is computed.
        self._held_size = size = self.get_size()
        try:
            yield size
        finally:
            self._held_size = None

    def get_size(self) -> Size:
        return self._held_size or super().get_size()

    def erase_down(self) -> None:
        # Unlike the base class's sequence, this does not copy the erased rows into the scrollback.
        self.write_raw(ERASE_DOWN)


class ReflowRenderer(Renderer):
    """Renderer that finds its drawing again after the terminal re-wrapped it.

    The base class assumes one row of the screen for each of its rows. A narrower terminal wraps a
    long row into several, and the cursor moves with its row. Some terminals count the blanks of a
    row that was longer before, so a row that becomes shorter is erased and drawn again.

    Arguments:
        app: the application to draw.
        output: the application's terminal.
    """

    # Blank rows reserved above the prompt because re-wrapping made it taller. They are released
    # when text is printed above the prompt. Without them the prompt would climb at each new width,
    # and the next width would push its first rows into the scrollback.
    reserved_rows = 0

    def __init__(self, app: Application[None], output: StableOutput) -> None:
        self._app = app
        self._stable_output = output
        self._settled_at = 0.0
        super().__init__(app.renderer.style, output)

    @property
    def is_settling(self) -> bool:
        """True shortly after a change of width.

        Long rows should wait: wrapped once more, they would push rows into the scrollback.
        """
        return time.monotonic() < self._settled_at

    def render(self, app: Application[None], layout: Layout, is_done: bool = False) -> None:
        """Draw the changes; draw everything if the width has changed."""
        with self._stable_output.hold_size() as size:
            self._follow_width(size)
            before = self._measure_rows() if self._last_size == size else []
            super().render(app, layout, is_done)
            after = self._measure_rows()
            rows = enumerate(zip(before, after, strict=False))
            shorter = [y for y, (old, new) in rows if new < old]
            if shorter:
                self._erase_rows(shorter)
                super().render(app, layout, is_done)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Erase the drawing with all rows that it occupies now."""
        with self._stable_output.hold_size() as size:
            self._follow_width(size)
            super().erase(leave_alternate_screen)

    def _follow_width(self, size: Size) -> None:
        """Move the cursor to the left edge and count its row at the current width."""
        screen = self._last_screen
        drawn_size = self._last_size
        columns = size.columns
        if self.full_screen or not screen or not drawn_size or drawn_size.columns == columns:
            return
        if not terminal_rewraps(os.environ):
            return
        self._settled_at = time.monotonic() + SETTLE_SECONDS
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._app.invalidate)
        cursor = self._cursor_pos
        rows = screen.data_buffer
        above = sum(
            count_wrapped_rows(rows[y], self._measure_row(screen, y), columns)
            for y in range(cursor.y)
        )
        own_width = min(cursor.x + 1, self._measure_row(screen, cursor.y), drawn_size.columns)
        own = count_wrapped_rows(rows[cursor.y], own_width, columns)
        self.output.write_raw("\r")
        self._cursor_pos = Point(x=0, y=above + own - 1)
        self.reserved_rows += self._cursor_pos.y - cursor.y

    def _erase_rows(self, rows: Iterable[int]) -> None:
        screen = self._last_screen
        if not screen:
            return
        for y in rows:
            self.output.cursor_up(max(0, self._cursor_pos.y - y))
            self.output.cursor_down(max(0, y - self._cursor_pos.y))
            self.output.write_raw("\r\x1b[2K")
            self._cursor_pos = Point(x=0, y=y)
            screen.data_buffer.pop(y, None)

    def _measure_rows(self) -> list[int]:
        screen = self._last_screen
        return [self._measure_row(screen, y) for y in range(screen.height)] if screen else []

    def _measure_row(self, screen: Screen, y: int) -> int:
        """Return the columns of a row, without unstyled blanks at its end."""
        row = screen.data_buffer[y]
        styled = self._style_string_has_style
        last = -1
        for x, cell in row.items():
            if cell.char != " " or (styled and styled[cell.style]):
                last = max(last, x)
        return last + (row[last].width or 1) if last >= 0 else 0


def count_wrapped_rows(row: Row, width: int, columns: int) -> int:
    """Count the screen rows of a drawn row.

    Arguments:
        width: columns of the row to count.
        columns: width of the terminal.
    """
    rows = 1
    used = 0
    x = 0
    while x < width:
        cell = row[x].width or 1
        # A wide character is never split.
        if used and used + cell > columns:
            rows += 1
            used = 0
        used += cell
        x += cell
    return rows


def terminal_rewraps(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal re-wraps long rows when it becomes narrower."""
    # The Linux console, xterm and screen cut them off instead.
    if environ.get("TERM") == "linux":
        return False
    return "TMUX" in environ or not {"XTERM_VERSION", "STY"} & set(environ)
