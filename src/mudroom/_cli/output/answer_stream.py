"""The root run's answers as a stream of complete Markdown blocks, each printed once."""

from __future__ import annotations

from collections.abc import Callable

from ..._core.events import AnyEvent, Delta, ModelCallRetried, RunFinished, TurnFailed, TurnFinished
from ..._core.messages import AssistantMessage, TextBlock
from ..._core.runs import is_child_id
from .markdown import MarkdownBlocks


class AnswerStream:
    """Folds events into blocks of text.

    `write_block` gets False with an item whose list continues; `on_cut_off` is called if blocks of
    a failed model call have been written.
    """

    def __init__(
        self, write_block: Callable[[str, bool], None], on_cut_off: Callable[[], None]
    ) -> None:
        self._write_block = write_block
        self._on_cut_off = on_cut_off
        self._blocks = MarkdownBlocks()
        self._streamed = ""
        self._last_answer = ""

    @property
    def pending(self) -> str:
        return self._blocks.pending

    def apply(self, event: AnyEvent) -> None:
        if not event.run or is_child_id(event.run):
            return
        match event:
            case Delta(kind="text"):
                self._streamed += event.text
                self._write_text(self._blocks.feed(event.text))
            case Delta():
                # Text after a model step is a separate block.
                self._write_text(self._blocks.take_rest())
            case ModelCallRetried():
                self._break_off()
            case TurnFailed():
                self._last_answer = self._streamed.strip() or self._last_answer
                self._break_off()
            case TurnFinished():
                self._finish(event.message)
            case RunFinished():
                # The report usually repeats the last answer.
                if event.report.text.strip() != self._last_answer:
                    self._write_text(event.report.text)
                self._last_answer = ""
            case _:
                pass

    def _finish(self, message: AssistantMessage) -> None:
        """Write the part of a complete answer that was not streamed."""
        texts = [block.text for block in message.content if isinstance(block, TextBlock)]
        was_streamed = "".join(texts).strip() == self._streamed.strip()
        self._write_text(self._blocks.take_rest() if was_streamed else message.text)
        self._reset()
        self._last_answer = message.text.strip() or self._last_answer

    def _break_off(self) -> None:
        if self._streamed.strip():
            self._write_text(self._blocks.take_rest())
            self._on_cut_off()
        self._reset()

    def _reset(self) -> None:
        self._blocks = MarkdownBlocks()
        self._streamed = ""

    def _write_text(self, markdown: str) -> None:
        if markdown.strip():
            self._write_block(markdown, not self._blocks.is_in_list)
