"""What the root run says, as it says it: whole blocks of Markdown, each once, and nothing twice when the answer comes whole."""

from __future__ import annotations

from collections.abc import Callable

from ..._core.events import AnyEvent, Delta, ModelCallRetried, RunFinished, TurnFailed, TurnFinished
from .markdown import MarkdownBlocks


class AnswerStream:
    """A fold of events to blocks.

    Arguments:
        put: takes each block that is whole. cut_off: called when words that were put are void, because the call failed.
    """

    def __init__(self, put: Callable[[str], None], cut_off: Callable[[], None]) -> None:
        self._put, self._cut_off = put, cut_off
        self._blocks, self._said, self._last = MarkdownBlocks(), "", ""

    @property
    def pending(self) -> str:
        """The end of the answer that streams now."""
        return self._blocks.pending

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if not event.run or "." in event.run:
            return
        match event:
            case Delta(kind="text"):
                self._said += event.text
                self._give(self._blocks.feed(event.text))
            case ModelCallRetried() | TurnFailed():
                if self._said.strip():
                    self._give(self._blocks.take_rest())
                    self._cut_off()
                self._blocks, self._said = MarkdownBlocks(), ""
            case TurnFinished():
                self._finish(event.message.text)
            case RunFinished():
                if event.report.text.strip() != self._last:
                    self._give(event.report.text)
                self._last = ""
            case _:
                pass

    def _finish(self, text: str) -> None:
        """Give what was not streamed of a whole answer."""
        self._give(self._blocks.take_rest() if text.strip() == self._said.strip() else text)
        self._blocks, self._said, self._last = MarkdownBlocks(), "", text.strip()

    def _give(self, markdown: str) -> None:
        if markdown.strip():
            self._put(markdown)
