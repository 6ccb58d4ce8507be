"""Receipts of compactions: what the model still knows of a conversation, at any turn."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from ..._core.events import (
    AnyEvent,
    Compacted,
    ConversationRewound,
    MessageDelivered,
    ResultsCleared,
    RunStarted,
)
from ..._core.listings import count_noun
from ...errors import UsageError
from ..transcript import list_rules


class ContextReceipt(Struct, frozen=True):
    """What the model still knows of a conversation.

    Arguments:
        compacted: the last compaction, without its messages; None if there was none.
        cleared: results cleared since then.
    """

    compacted: Compacted | None = None
    cleared: int = 0


class _Run(Struct):
    """A root run, or a child run with edits: the run before it, the user's texts, and the edits."""

    continues: str = ""
    texts: list[str] = field(default_factory=list[str])
    edits: list[Compacted | ResultsCleared] = field(
        default_factory=list["Compacted | ResultsCleared"]
    )


class ContextReceipts:
    """The receipts of all runs, updated with each event. Keeps no messages of the model."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._latest = ""

    def apply(self, event: AnyEvent) -> None:
        if isinstance(event, RunStarted) and not event.brief.depth:
            texts = [] if event.brief.is_compaction else [event.brief.prompt]
            self._runs[event.run] = _Run(event.brief.continues, texts)
            self._latest = event.run
        elif isinstance(event, ConversationRewound):
            self._latest = event.latest_run
        elif isinstance(event, Compacted | ResultsCleared):
            edit = replace(event, messages=()) if isinstance(event, Compacted) else event
            self._runs.setdefault(event.run, _Run()).edits.append(edit)
        elif isinstance(event, MessageDelivered) and event.origin == "user":
            self._runs.setdefault(event.run, _Run()).texts.append(event.text)

    def rewind(self, run_id: str) -> None:
        """Go back to the state before a root run."""
        self._latest = self._runs[run_id].continues

    def list_rules(self, *more: str) -> list[str]:
        """List the user's rules that hold. `more`: texts of the next prompt."""
        texts = [text for run in self._walk(self._latest) for text in run.texts]
        return list_rules([*texts, *more])

    def _walk(self, run_id: str) -> list[_Run]:
        """List the runs of the conversation up to this one, oldest first."""
        runs: list[_Run] = []
        while run_id in self._runs:
            runs.insert(0, self._runs[run_id])
            run_id = runs[0].continues
        return runs

    def find(self, run: str = "", turn: int = 0) -> ContextReceipt:
        """Find the receipt at the request of a turn; by default at the next request.

        Arguments:
            run: id of a run. turn: one of its turns.
        """
        receipt = ContextReceipt()
        runs = self._walk(run or self._latest)
        for edit in (edit for each in runs for edit in each.edits):
            if edit.run == run and edit.turn >= turn:
                break
            if isinstance(edit, Compacted):
                receipt = ContextReceipt(edit)
            else:
                receipt = replace(receipt, cleared=receipt.cleared + len(edit.texts))
        return receipt


def parse_turn_name(name: str) -> tuple[str, int]:
    """Split a turn's name into run id and number: "1.3.2.5" is turn 5 of run "1.3.2".

    Raises UsageError.
    """
    run, _, turn = name.rpartition(".")
    if not run or not turn.isdecimal():
        raise UsageError(
            f"no turn has the name {name!r}",
            remedy="Name a run and a turn, such as 1.8 for turn 8 of prompt 1.",
        )
    return run, int(turn)


def describe_receipt(receipt: ContextReceipt) -> list[tuple[str, str]]:
    """Describe a receipt as rows of a table: a name, and what the model still knows."""
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
        sizes = [
            f"{parts.get(f'{name}_tokens', 0):,} of {title}"
            for name, title in (
                ("words", "messages and rules"),
                ("facts", "facts"),
                ("notes", "notes"),
                ("turns", "last turns"),
            )
        ]
        rows.append(("tokens", ", ".join(sizes)))
        notes = parts.get("notes_tokens", 0)
        rows.append(("notes", f"{notes:,} tokens, run {event.summary_run}" if notes else "none"))
    if receipt.cleared:
        cleared = f"{count_noun(receipt.cleared, 'old result')}; the record has them"
        rows.append(("cleared", cleared))
    return rows or [("compacted", "no, the model has the whole conversation")]
