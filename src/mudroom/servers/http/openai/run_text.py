"""RunText: the text of a prompt that clients read while it runs."""

from __future__ import annotations

from ...._core.events import AnyEvent, Delta, ModelCallRetried, TurnFinished
from ...._core.messages import TextBlock
from ...._core.run_ids import is_child_id

_BETWEEN = "\n\n"


class RunText:
    """The streamed text of the root run, turn after turn, without that of failed calls."""

    def __init__(self) -> None:
        self._turn = ""
        self._last_turn = ""
        self._has_sent = False
        self._is_void = False

    def add(self, event: AnyEvent) -> str:
        """Return the text that an event adds, "" for none."""
        if is_child_id(event.run):
            return ""
        match event:
            case Delta(kind="text") if not self._is_void:
                return self._add_to_turn(event.text)
            case ModelCallRetried():
                self._is_void = bool(self._turn)  # a stream cannot take text back
            case TurnFinished():
                return self._end_turn(event)
            case _:
                pass
        return ""

    def end(self, text: str) -> str:
        """Return the rest, for the text of the report."""
        if not text.strip() or text.strip() == self._last_turn.strip():
            return ""
        return f"{_BETWEEN}{text}" if self._has_sent else text

    def _add_to_turn(self, text: str) -> str:
        start = _BETWEEN if self._has_sent and not self._turn else ""
        self._turn += text
        self._has_sent = self._has_sent or bool(text)
        return start + text

    def _end_turn(self, event: TurnFinished) -> str:
        blocks = event.message.content
        whole = "".join(block.text for block in blocks if isinstance(block, TextBlock))
        sent = self._turn
        rest = whole.removeprefix(sent)
        if not whole.startswith(sent):
            self._turn = ""
            rest = whole
        added = self._add_to_turn(rest) if rest else ""
        self._turn = ""
        self._is_void = False
        self._last_turn = whole
        return added
