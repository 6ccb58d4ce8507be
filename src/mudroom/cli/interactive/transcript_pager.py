"""An open transcript: one run's, followed while it runs, with a place in it that moves."""

from __future__ import annotations

from collections.abc import Iterator

from ..._core.events import Stored
from ...projections.run_tree import RunView
from ..output.text import Glyphs, Line, broken, width
from ..output.transcript_lines import transcript_lines


class Opened:
    """The transcript of one run, followed while it runs. `events`: its own, more of them as they come."""

    def __init__(self, run: RunView, events: list[Stored]) -> None:
        self.run, self.back = run, 0
        self._events = events
        self._drawn: tuple[int, int] = (-1, 0)
        self._body: list[Line] = []

    def lines(self, columns: int, height: int, signs: Glyphs) -> list[Line]:
        """Its end, or what is `back` lines before it, and the words that stream."""
        if self._drawn != (len(self._events), columns):
            self._drawn = len(self._events), columns
            lines = transcript_lines(self.run, self._events, columns=columns, signs=signs)
            self._body = [part for line in lines for part in _broken(line, columns)]
        tail: list[Line] = [
            [(f"  {part}", "")]
            for line in self.run.tail.splitlines()
            for part in broken(line, columns - 2)
        ]
        whole = [*self._body, *tail]
        self.back = max(0, min(self.back, len(whole) - height))
        return whole[max(0, len(whole) - height - self.back) : len(whole) - self.back]


def _broken(line: Line, columns: int) -> Iterator[Line]:
    """A line as lines that fit, each as far in as it is."""
    line = [(words.expandtabs(4), style) for words, style in line]
    if sum(width(words) for words, _ in line) <= columns:
        yield line
        return
    text, style = "".join(words for words, _ in line), line[0][1] if len(line) == 1 else ""
    words = text.lstrip(" ")
    stem = text[: min(len(text) - len(words), columns // 2)]
    yield from ([(stem + part, style)] for part in broken(words, columns - len(stem)))
