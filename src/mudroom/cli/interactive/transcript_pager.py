"""An open transcript: one run's, followed while it runs, with a place in it that moves."""

from __future__ import annotations

from collections.abc import Iterator

from ..._core.events import StoredEvent
from ...projections.run_tree import RunView
from ..output.text import Glyphs, Line, display_width, wrap
from ..output.transcript_lines import format_transcript


class TranscriptPager:
    """The transcript of one run, followed while it runs. `events`: its own, more of them as they come."""

    def __init__(self, run: RunView, events: list[StoredEvent]) -> None:
        self.run, self.lines_from_end = run, 0
        self._events = events
        self._drawn: tuple[int, int] = (-1, 0)
        self._body: list[Line] = []

    def lines(self, columns: int, height: int, signs: Glyphs) -> list[Line]:
        """Its end, or what is `back` lines before it, and the words that stream."""
        if self._drawn != (len(self._events), columns):
            self._drawn = len(self._events), columns
            lines = format_transcript(self.run, self._events, columns=columns, signs=signs)
            self._body = [part for line in lines for part in _broken(line, columns)]
        tail: list[Line] = [
            [(f"  {part}", "")]
            for line in self.run.streamed_tail.splitlines()
            for part in wrap(line, columns - 2)
        ]
        whole = [*self._body, *tail]
        self.lines_from_end = max(0, min(self.lines_from_end, len(whole) - height))
        return whole[
            max(0, len(whole) - height - self.lines_from_end) : len(whole) - self.lines_from_end
        ]


def _broken(line: Line, columns: int) -> Iterator[Line]:
    """A line as lines that fit, each as far in as it is."""
    line = [(words.expandtabs(4), style) for words, style in line]
    if sum(display_width(words) for words, _ in line) <= columns:
        yield line
        return
    text, style = "".join(words for words, _ in line), line[0][1] if len(line) == 1 else ""
    words = text.lstrip(" ")
    stem = text[: min(len(text) - len(words), columns // 2)]
    yield from ([(stem + part, style)] for part in wrap(words, columns - len(stem)))
