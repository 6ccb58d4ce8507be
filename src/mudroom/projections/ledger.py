"""The ledger: what the children took in, what came back, and what the parent's context would have been without them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from .._core.agents import Brief
from .._core.events import AnyEvent, RunFinished, RunStarted, ToolCallFinished, TurnFinished
from .._core.messages import Usage
from .._core.tools import canonical_tool_name

BYTES_PER_TOKEN = 3.5
"""How tokens of texts are estimated; only providers know the true figure, and they tell it for whole requests."""


class Ledger(Struct, frozen=True, kw_only=True):
    """What isolation was worth in one session.

    Arguments:
        children: runs with a context of their own below the conversation, at any depth; also those a program began.
        taken_lines, taken_bytes, taken_tokens: what tools other than `task` put into the children's contexts.
        returned_lines, returned_bytes, returned_tokens: what `task` put into the root run's context, and reports to a program.
        parent_tokens: the largest prompt of a root run's model call, as its provider counted it.
        without_children_tokens: what that prompt would have been, had the root run read all of it itself.
        child_tokens: tokens of all model calls of the children, in and out, as their providers counted them.

    Tokens of `taken` and `returned` are estimates: bytes / 3.5, rounded.

    Example:
        events: list[AnyEvent] = []
        session.watch(events.append)
        await session.task("Find the author.")
        Ledger.of(events).children == 1
    """

    children: int = 0
    taken_lines: int = 0
    taken_bytes: int = 0
    taken_tokens: int = 0
    returned_lines: int = 0
    returned_bytes: int = 0
    returned_tokens: int = 0
    parent_tokens: int = 0
    without_children_tokens: int = 0
    child_tokens: int = 0

    @staticmethod
    def from_events(events: Iterable[AnyEvent]) -> Ledger:
        """What these events of one session come to, oldest first."""
        return compute_ledger(events)


class LedgerBuilder:
    """Keeps the sums of a ledger while events come; no text is kept."""

    def __init__(self) -> None:
        self._children: set[str] = set()
        self._roots: set[str] = set()
        self._programs: set[str] = set()
        self._taken, self._returned = [0, 0], [0, 0]
        self._parent_tokens = self._child_tokens = 0

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event."""
        if isinstance(event, RunStarted):
            self._begin(event.brief)
        elif isinstance(event, TurnFinished):
            self._count(event.run, event.message.usage)
        elif isinstance(event, ToolCallFinished):
            handed_back = canonical_tool_name(event.name) == "task"
            if event.run in self._children and not handed_back:
                _add_text(self._taken, event.result.text)
            elif event.run in self._roots and handed_back and not event.refused:
                _add_text(self._returned, event.result.text)
        elif isinstance(event, RunFinished) and event.run in self._programs:
            _add_text(self._returned, event.report.text)

    def _begin(self, brief: Brief) -> None:
        (self._children if brief.depth else self._roots).add(brief.run_id)
        if brief.depth and not brief.parent:
            self._programs.add(brief.run_id)

    def _count(self, run: str, usage: Usage) -> None:
        if run in self._children:
            self._child_tokens += usage.total_tokens
        elif run in self._roots:
            self._parent_tokens = max(self._parent_tokens, usage.input_tokens)

    @property
    def ledger(self) -> Ledger:
        """The ledger as it stands."""
        (taken_lines, taken_bytes), (returned_lines, returned_bytes) = self._taken, self._returned
        taken, returned = (
            round(taken_bytes / BYTES_PER_TOKEN),
            round(returned_bytes / BYTES_PER_TOKEN),
        )
        return Ledger(
            children=len(self._children),
            taken_lines=taken_lines,
            taken_bytes=taken_bytes,
            taken_tokens=taken,
            returned_lines=returned_lines,
            returned_bytes=returned_bytes,
            returned_tokens=returned,
            parent_tokens=self._parent_tokens,
            without_children_tokens=max(0, self._parent_tokens - returned) + taken
            if self._parent_tokens
            else 0,
            child_tokens=self._child_tokens,
        )


def compute_ledger(events: Iterable[AnyEvent]) -> Ledger:
    """The ledger of a recorded session."""
    tally = LedgerBuilder()
    for event in events:
        tally.apply(event)
    return tally.ledger


def describe_ledger(ledger: Ledger) -> str:
    """The ledger in plain words; figures with ~ or "about" are estimates."""
    if not ledger.children:
        return f"No children ran. Parent context: {ledger.parent_tokens:,} tokens."
    children = "1 child" if ledger.children == 1 else f"{ledger.children:,} children"
    taken = _format_amount(ledger.taken_lines, ledger.taken_bytes, ledger.taken_tokens)
    returned = _format_amount(ledger.returned_lines, ledger.returned_bytes, ledger.returned_tokens)
    words = f"{children} read {taken}; {returned} came back."
    if ledger.parent_tokens:
        words += f" Parent context: {ledger.parent_tokens:,} tokens; without children about {_round_tokens(ledger.without_children_tokens)}."
    return words


def _add_text(sums: list[int], text: str) -> None:
    sums[0] += text.count("\n") + (text != "" and not text.endswith("\n"))
    sums[1] += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _format_amount(lines: int, size: int, tokens: int) -> str:
    return f"{lines:,} {'line' if lines == 1 else 'lines'} ({_format_size(size)}, ~{_round_tokens(tokens)} tokens)"


def _format_size(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:,.{1 if size < 10 * scale else 0}f} {unit}"
    return f"{size} B"


def _round_tokens(tokens: int) -> str:
    return f"{round(tokens, 3 - len(str(tokens))):,}" if tokens >= 1000 else str(tokens)
