"""What is written on: the scrollback of a terminal."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .text import UNICODE, Glyphs, Line, paint


class Scrollback(Struct, frozen=True, kw_only=True):
    """What is written on.

    Arguments:
        write: takes text with its line ends. columns: width of the screen now. color: whether to style the words.
    """

    write: Callable[[str], None]
    columns: Callable[[], int]
    color: bool = True
    glyphs: Glyphs = UNICODE

    def write_lines(self, *lines: Line) -> None:
        """Write lines."""
        self.write(paint(lines, color=self.color))
