"""Consecutive tool calls that have one line each: many of them become one group."""

from __future__ import annotations

from collections import Counter

from ..._core.listings import count_noun
from .text import Glyphs, Line, measure_width, truncate

# From this many calls on, a group replaces their lines.
MIN_GROUPED_CALLS = 4


class CallGroup:
    def __init__(self) -> None:
        self._calls: list[tuple[str, str, Line]] = []

    def add(self, name: str, title: str, line: Line) -> None:
        """Add a call: the name of its tool, its title, and its line."""
        self._calls.append((name, title, line))

    def take_lines(self, columns: int, glyphs: Glyphs) -> list[Line]:
        """Remove all calls and return their lines, or those of the group."""
        lines = self.format_lines(columns, glyphs)
        self._calls.clear()
        return lines

    def format_lines(self, columns: int, glyphs: Glyphs) -> list[Line]:
        """Return a line for each call, or for many: the counts and the first titles."""
        if len(self._calls) < MIN_GROUPED_CALLS:
            return [line for _, _, line in self._calls]
        counts = Counter(name for name, _, _ in self._calls)
        names = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        head = f"{glyphs.head}{count_noun(len(self._calls), 'call')}: {names}"
        stem = f"  {glyphs.hook}"
        titles = ", ".join(dict.fromkeys(title for _, title, _ in self._calls if title))
        room = columns - measure_width(stem)
        return [
            [(truncate(head, columns, glyphs.more), "")],
            [(stem, "dim"), (truncate(titles, room, glyphs.more), "dim")],
        ]
