"""Progress of calls for screens: not more lines than someone can read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINE_SECONDS = 0.25
"""Least seconds between two lines of one call."""


class LineLimit:
    """Limit of the lines that one call shows. Lines that come too soon are left out.

    Arguments:
        show_line: shows one line.
        now: returns seconds that only grow; default: those of the event loop.
    """

    def __init__(
        self, show_line: Callable[[str], object], now: Callable[[], float] | None = None
    ) -> None:
        self._show_line = show_line
        self._now = now or asyncio.get_running_loop().time
        self._next = 0.0

    def show(self, line: str) -> None:
        """Show a line, unless the last one is too recent."""
        now = self._now()
        if now >= self._next:
            self._next = now + LINE_SECONDS
            self._show_line(line)
