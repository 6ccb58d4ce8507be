"""Thinking of the root run: its end while it streams, one line when it is complete."""

from __future__ import annotations

from ..._core.events import AnyEvent, Delta, ModelCallRetried, TurnFailed, TurnFinished, TurnStarted
from ..._core.listings import count_noun
from ..._core.messages import AssistantMessage, ThinkingBlock
from ..._projections.safe_text import sanitize, sanitize_line
from .text import Glyphs, Line, wrap, wrap_last_lines

# Rows shown of thinking that streams.
STREAMED_ROWS = 2


class ThinkingFold:
    """Folds the root run's events into its thinking.

    Attributes:
        is_latest: true if no result came after the last thinking.
    """

    def __init__(self) -> None:
        self.is_latest = False
        self._streamed = ""
        self._complete = ""
        self._is_folded = False

    def apply(self, event: AnyEvent) -> str:
        """Add the next event; return the line of a thinking that is complete now, "" for none."""
        match event:
            case TurnStarted():
                self._is_folded = False
                self._streamed = ""
            case Delta(kind="thinking"):
                self._streamed += event.text
            case Delta():
                return self._fold(self._streamed)
            case TurnFinished():
                return self._fold(self._streamed or _join_thinking(event.message))
            case TurnFailed() | ModelCallRetried():
                self._streamed = ""
            case _:
                pass
        return ""

    def format_lines(self, columns: int, glyphs: Glyphs) -> list[Line]:
        """Return the end of the thinking that streams."""
        rows = wrap_last_lines(sanitize(self._streamed), columns - 2, STREAMED_ROWS)
        return [[(f"  {row}", "dim")] for row in rows]

    def format_full(self, columns: int) -> list[Line]:
        lines = sanitize(self._complete).strip().splitlines()
        return [[(row, "dim")] for line in lines for row in wrap(line, columns)]

    def _fold(self, text: str) -> str:
        self._streamed = ""
        if self._is_folded or not text.strip():
            return ""
        self._is_folded = True
        self.is_latest = True
        self._complete = text
        lines = text.strip().splitlines()
        size = count_noun(len(lines), "line")
        return f"Thought ({size}, ctrl+o): {sanitize_line(lines[0])}"


def _join_thinking(message: AssistantMessage) -> str:
    blocks = [block for block in message.content if isinstance(block, ThinkingBlock)]
    return "\n".join(block.text for block in blocks if block.text)
