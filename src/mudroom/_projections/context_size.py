"""What a context contains: the receipt of its compactions, and the shares of its parts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from .._core.events import (
    AnyEvent,
    Compacted,
    ConversationRewound,
    MessageDelivered,
    ResultsCleared,
    RunResumed,
    RunStarted,
    ToolCallStarted,
)
from .._core.listings import count_noun
from .._core.messages import (
    AssistantMessage,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    estimate_block_tokens,
    estimate_tokens,
)
from .._core.runs import RequestHead, is_child_id
from ..errors import UsageError
from .transcript import ConversationContext, list_rules


class ContextReceipt(Struct, frozen=True):
    """What the model still knows of a conversation, and how many results were cleared since."""

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
    """The receipts of all runs, updated with each event. Keeps no model messages."""

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
        self._latest = self._runs[run_id].continues

    def list_rules(self, *more: str) -> list[str]:
        """List the user's rules in force. `more`: texts of the next prompt."""
        texts = [text for run in self._walk(self._latest) for text in run.texts]
        return list_rules([*texts, *more])

    def _walk(self, run_id: str) -> list[_Run]:
        runs: list[_Run] = []
        while run_id in self._runs:
            runs.insert(0, self._runs[run_id])
            run_id = runs[0].continues
        return runs

    def find(self, run: str = "", turn: int = 0) -> ContextReceipt:
        """Find the receipt at the request of a turn; by default at the next request."""
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
    """Split a turn's name: "1.3.2.5" is turn 5 of run "1.3.2". Raises UsageError."""
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


class ContextShares:
    """The shares of a conversation's context, updated with each event of all runs."""

    def __init__(self) -> None:
        self._conversation = ConversationContext()
        self._sizes: dict[str, int] = {}
        self._heads: dict[str, RequestHead] = {}
        self._head_of_run: dict[str, str] = {}
        self._child_calls: set[str] = set()

    def apply(self, event: AnyEvent) -> None:
        self._conversation.apply(event)
        if type(event) is ToolCallStarted:
            if event.view == "run" and not is_child_id(event.run):
                self._child_calls.add(event.call.id)
        elif (type(event) is RunStarted or type(event) is RunResumed) and event.head:
            head = event.head
            for name, part in head.parts.items():
                text = part if isinstance(part, str) else msgspec.json.encode(part).decode()
                self._sizes[name] = estimate_tokens(text)
            if head.system:
                self._heads[head.id] = head
            if not is_child_id(event.run):
                self._head_of_run[event.run] = head.id

    def rewind(self, run_id: str) -> None:
        self._conversation.rewind(run_id)

    def measure(self) -> list[tuple[str, int]]:
        run = self._conversation.latest_run
        head = self._heads.get(self._head_of_run.get(run, ""))
        shares = {
            "instructions": 0,
            "tool descriptions": 0,
            "your messages": 0,
            "answers": 0,
            "tool calls": 0,
            "tool results": 0,
            "child reports": 0,
        }
        if head:
            shares["instructions"] = self._sizes.get(head.system, 0)
            shares["tool descriptions"] = sum(self._sizes.get(tool, 0) for tool in head.tools)
        for message in self._conversation.list_messages():
            if isinstance(message, AssistantMessage):
                calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
                call_tokens = estimate_block_tokens(calls)
                shares["answers"] += estimate_block_tokens(message.content) - call_tokens
                shares["tool calls"] += call_tokens
            else:
                self._add_user_message(shares, message.content)
        return [(name, size) for name, size in shares.items() if size]

    def _add_user_message(self, shares: dict[str, int], blocks: Sequence[UserBlock]) -> None:
        for block in blocks:
            name = "your messages"
            if isinstance(block, ToolResultBlock):
                is_report = block.call_id in self._child_calls
                name = "child reports" if is_report else "tool results"
            shares[name] += estimate_block_tokens([block])
