"""Receipts of compactions: what the model still knows of a conversation, at any turn."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from .._core.counts import count_noun
from .._core.events import AnyEvent, Compacted, ResultsCleared


class ContextReceipt(Struct, frozen=True):
    """What the model still knows of a conversation.

    Arguments:
        compacted: the last compaction, without its messages; None if there was none.
        cleared: results cleared since then.
    """

    compacted: Compacted | None = None
    cleared: int = 0


class ContextReceipts:
    """Receipts of all root runs, updated with each event. It keeps no messages."""

    def __init__(self) -> None:
        self._edits: list[Compacted | ResultsCleared] = []

    def apply(self, event: AnyEvent) -> None:
        """Add the next event."""
        if "." in event.run:
            return
        if isinstance(event, Compacted):
            self._edits.append(replace(event, messages=()))
        elif isinstance(event, ResultsCleared):
            self._edits.append(event)

    def find(self, run: int | None = None, turn: int | None = None) -> ContextReceipt:
        """Return the receipt at the request of a turn; by default at the next request.

        Arguments:
            run: number of a root run. turn: one of its turns.
        """
        receipt = ContextReceipt()
        for edit in self._edits:
            place = (int(edit.run), edit.turn)
            if run is not None and place >= (run, turn or 0):
                break
            if isinstance(edit, Compacted):
                receipt = ContextReceipt(edit)
            else:
                receipt = replace(receipt, cleared=receipt.cleared + len(edit.texts))
        return receipt


def describe_receipt(receipt: ContextReceipt) -> list[tuple[str, str]]:
    """Return rows for a table: a name, and what the model still knows."""
    rows: list[tuple[str, str]] = []
    if event := receipt.compacted:
        parts = event.parts
        place = f"after turn {event.turn} of run {event.run}"
        sizes = f"{event.before:,} -> {event.after:,} tokens"
        rows.append(("compacted", f"{place}: {sizes}"))
        kept = [
            f"{count_noun(parts.get('messages', 0), 'message')} of yours word for word",
            f"{parts.get('messages_left_out', 0)} only in the record",
            count_noun(parts.get("rules", 0), "rule"),
            count_noun(parts.get("files", 0), "file"),
            count_noun(parts.get("children", 0), "child run"),
            count_noun(parts.get("unread_messages", 0), "waiting message"),
            count_noun(parts.get("turns", 0), "last turn"),
        ]
        rows.append(("kept", ", ".join(kept)))
        notes = parts.get("notes_tokens", 0)
        rows.append(("notes", f"{notes:,} tokens, run {event.summary_run}" if notes else "none"))
    if receipt.cleared:
        cleared = f"{count_noun(receipt.cleared, 'old result')}; the record has them"
        rows.append(("cleared", cleared))
    return rows or [("compacted", "no, the model has the whole conversation")]
