"""A drawing that is found again by a terminal that was made narrower and has broken its rows anew."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Char, Screen
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer

SETTLE_SECONDS = 0.4
"""Seconds after which another width is taken for the last one; tmux says so four times a second while it is dragged."""

Row = dict[int, Char]


class ScrollbackSafeOutput(Vt100_Output):
    """A terminal whose scrollback gets nothing that is only taken away."""

    def erase_down(self) -> None:
        """Clear from the start of this row down: the row first, since tmux takes a whole screen that is cleared into its scrollback."""
        self.write_raw("\x1b[2K\x1b[C\x1b[J\x1b[D")


class ReflowRenderer(Renderer):
    """The library's renderer takes each of its rows for one row of the screen; at another width that is not so any more.

    Terminals break a row that has become too long into several, and the cursor goes with its row. A row that was longer
    once counts with its blanks in some of them, so one that has become shorter is cleared and drawn again.

    Arguments:
        app: the application it draws, from now on.
    """

    reserved_rows = 0
    """Rows to leave free above all that is drawn: those it took more when it was broken, until it is taken away to print above it.
    Without them it would climb with each new width, and the next one would push its first rows into the scrollback."""

    def __init__(self, app: Application[Any]) -> None:
        self._app, self._until = app, 0.0
        super().__init__(app.renderer.style, app.output)

    @property
    def is_settling(self) -> bool:
        """Whether the width has just changed. What is long had better wait: broken once more, it would push rows into the scrollback."""
        return time.monotonic() < self._until

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        """Draw what has changed; all of it at another width."""
        self._follow()
        before = self._widths() if self._last_size == self.output.get_size() else []
        super().render(app, layout, is_done)
        shorter = [
            y for y, (old, new) in enumerate(zip(before, self._widths(), strict=False)) if new < old
        ]
        if shorter:
            self._clear(shorter)
            super().render(app, layout, is_done)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Take the drawing away, with all rows it has by now."""
        self._follow()
        super().erase(leave_alternate_screen)

    def _follow(self) -> None:
        """The cursor to the left edge, and its place counted in rows of the screen as it is now."""
        screen, drawn, columns = self._last_screen, self._last_size, self.output.get_size().columns
        if (
            self.full_screen
            or not screen
            or not drawn
            or drawn.columns == columns
            or not terminal_rewraps(os.environ)
        ):
            return
        self._until = time.monotonic() + SETTLE_SECONDS
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._app.invalidate)
        at, edge = self._cursor_pos, drawn.columns
        above = sum(
            count_wrapped_rows(screen.data_buffer[y], self._width(screen, y), columns)
            for y in range(at.y)
        )
        own = min(at.x + 1, self._width(screen, at.y), edge)
        self.output.write_raw("\r")
        self._cursor_pos = Point(
            x=0, y=above + count_wrapped_rows(screen.data_buffer[at.y], own, columns) - 1
        )
        self.reserved_rows += self._cursor_pos.y - at.y

    def _clear(self, rows: Iterable[int]) -> None:
        screen = self._last_screen
        if not screen:
            return
        for y in rows:
            self.output.cursor_up(max(0, self._cursor_pos.y - y))
            self.output.cursor_down(max(0, y - self._cursor_pos.y))
            self.output.write_raw("\r\x1b[2K")
            self._cursor_pos = Point(x=0, y=y)
            screen.data_buffer.pop(y, None)

    def _widths(self) -> list[int]:
        screen = self._last_screen
        return [self._width(screen, y) for y in range(screen.height)] if screen else []

    def _width(self, screen: Screen, y: int) -> int:
        """Columns a row takes, without the blanks at its end."""
        row, styled = screen.data_buffer[y], self._style_string_has_style
        last = max(
            (x for x, cell in row.items() if cell.char != " " or (styled and styled[cell.style])),
            default=-1,
        )
        return last + (row[last].width or 1) if last >= 0 else 0


def count_wrapped_rows(row: Row, width: int, columns: int) -> int:
    """How many rows of so many columns a row becomes, taken up to `width`; a wide character is never cut in two."""
    rows, used, x = 1, 0, 0
    while x < width:
        cell = row[x].width or 1
        if used and used + cell > columns:
            rows, used = rows + 1, 0
        used, x = used + cell, x + cell
    return rows


def terminal_rewraps(environ: Mapping[str, str]) -> bool:
    """Whether the terminal breaks rows that have become too long: the Linux console, xterm and screen cut them off."""
    return environ.get("TERM") != "linux" and (
        "TMUX" in environ or not {"XTERM_VERSION", "STY"} & set(environ)
    )
