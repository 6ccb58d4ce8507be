"""Scrollable transcript of one run; it follows the run while the run works."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..._core.events import StoredEvent
from ..._core.runs import InboxMessage
from ..._projections.run_view import RunView
from ..._projections.safe_text import sanitize, sanitize_line
from ..output.text import Glyphs, Line, wrap, wrap_line
from ..output.transcript_lines import format_transcript
from ..output.tree_lines import MAX_OUTPUT_LINES


class TranscriptPager:
    """The transcript of one run and the position in it.

    Arguments:
        events: events of this run; more may be appended later.
        list_unread: returns the messages that the run has not read; they follow the transcript.
    """

    def __init__(
        self,
        run: RunView,
        events: list[StoredEvent],
        list_unread: Callable[[], list[InboxMessage]] = list,
    ) -> None:
        self.run = run
        self.lines_from_end = 0
        self._events = events
        self._list_unread = list_unread
        self._drawn: tuple[int, int] = (-1, 0)
        self._body: list[Line] = []

    def format_lines(self, columns: int, height: int, glyphs: Glyphs) -> list[Line]:
        """Return the lines to show: the end, or a part `lines_from_end` lines before it."""
        # Formatting a long transcript is slow, and most drawings show the same one.
        if self._drawn != (len(self._events), columns):
            self._drawn = (len(self._events), columns)
            lines = format_transcript(self.run, self._events, columns=columns, glyphs=glyphs)
            self._body = [part for line in lines for part in wrap_line(line, columns)]
        streaming: list[Line] = [
            [(f"  {part}", "")]
            for line in self.run.streamed_tail.splitlines()
            for part in wrap(line, columns - 2)
        ]
        for row in self.run.output_tail.splitlines()[-MAX_OUTPUT_LINES:]:
            streaming += wrap_line([(f"    {sanitize(row).expandtabs(4)}", "dim")], columns)
        lines = [*self._body, *streaming, *self._format_unread(columns)]
        self.lines_from_end = max(0, min(self.lines_from_end, len(lines) - height))
        end = len(lines) - self.lines_from_end
        return lines[max(0, end - height) : end]

    def _format_unread(self, columns: int) -> Iterator[Line]:
        for message in self._list_unread():
            sender = sanitize_line(message.name or message.sender)
            for line in (
                [("", "")],
                [(f"message from {sender}, not read yet", "bold yellow")],
                *([(f"    {row}", "")] for row in sanitize(message.text).split("\n")),
            ):
                yield from wrap_line(line, columns)
