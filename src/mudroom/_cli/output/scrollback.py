"""A terminal's scrollback: the text that stays on screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from ..._projections.safe_text import sanitize
from .text import UNICODE, Glyphs, Line, measure_width, paint, wrap, wrap_indented


class Scrollback(Struct, frozen=True, kw_only=True):
    """Writes text that stays on screen. `columns` returns the current width."""

    write: Callable[[str], None]
    columns: Callable[[], int]
    color: bool = True
    glyphs: Glyphs = UNICODE

    def write_lines(self, *lines: Line) -> None:
        self.write(paint(lines, color=self.color))

    def write_text(self, text: str, style: str = "") -> None:
        columns = self.columns() - 1
        lines = sanitize(text).splitlines()
        rows = (row for line in lines for row in wrap_indented(line, columns))
        self.write_lines(*([(row, style)] for row in rows))

    def write_table(self, rows: Iterable[tuple[str, str]]) -> None:
        """Write rows of (name, text), wrapping the text in its column."""
        rows = list(rows)
        columns = self.columns() - 1
        widest = max((measure_width(name) for name, _ in rows), default=0)
        name_columns = min(widest, columns // 2)
        lines: list[Line] = []
        for name, text in rows:
            for part in wrap(sanitize(text), columns - name_columns - 4):
                padding = " " * (name_columns - measure_width(name))
                lines.append([(f"  {name}{padding}  ", "bold"), (part, "")])
                name = ""  # Only the first line has the name.
        self.write_lines(*lines)
