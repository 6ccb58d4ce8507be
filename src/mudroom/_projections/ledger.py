"""The ledger: how much text children read, how much came back, and what the parent saved."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from .._core.events import (
    AnyEvent,
    MessageDelivered,
    NoteInjected,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
)
from .._core.listings import count_noun, format_size
from .._core.messages import CHARACTERS_PER_TOKEN, Usage
from .._core.runs import Brief, find_first_id
from .cache_use import CacheUse, CacheUseFold, describe_cache_use


class Ledger(Struct, frozen=True, kw_only=True):
    """Text sizes of one session. Tokens of `read` and `returned` are estimates: bytes / 4.

    Arguments:
        children: children at any depth, each counted once however many runs it has; includes a
            program's tasks.
        read_lines, read_bytes, read_tokens: tool results, not reports, that went into children's
            contexts.
        returned_lines, returned_bytes, returned_tokens: children's reports and messages that went
            into the root run's context, and reports to a program.
        parent_tokens: the largest prompt of a root run's model calls, as counted by the provider.
        without_children_tokens: estimated size of that prompt had the root run read everything.
        child_tokens: input and output of all children's model calls, as counted by the providers.
        has_unknown_usage: true if children's answers were cut off; `child_tokens` lacks them.
        hook_bytes, hook_tokens: text from hooks that went into any context.
        cache: how much of the prompts came from the providers' caches, and why the rest did not.

    Example:
        events: list[AnyEvent] = []
        session.watch(events.append)
        await session.task("Find the author.")
        Ledger.from_events(events).children == 1
    """

    children: int = 0
    # `field(name=...)` is the key in the JSON output; it never changes.
    read_lines: int = field(name="taken_lines", default=0)
    read_bytes: int = field(name="taken_bytes", default=0)
    read_tokens: int = field(name="taken_tokens", default=0)
    returned_lines: int = 0
    returned_bytes: int = 0
    returned_tokens: int = 0
    parent_tokens: int = 0
    without_children_tokens: int = 0
    child_tokens: int = 0
    has_unknown_usage: bool = False
    hook_bytes: int = 0
    hook_tokens: int = 0
    cache: CacheUse = CacheUse()

    @staticmethod
    def from_events(events: Iterable[AnyEvent]) -> Ledger:
        """Build the ledger of one session's events, oldest first."""
        builder = LedgerBuilder()
        for event in events:
            builder.apply(event)
        return builder.ledger


class TextSum:
    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0

    def add(self, text: str) -> None:
        """Count a text, including a last line without a line feed."""
        self.lines += text.count("\n")
        if text and not text.endswith("\n"):
            self.lines += 1
        self.bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    @property
    def tokens(self) -> int:
        return round(self.bytes / CHARACTERS_PER_TOKEN)


class LedgerBuilder:
    """A ledger's sums, updated with each event. Keeps no texts.

    Example:
        builder = LedgerBuilder()
        session.watch(builder.apply)
        await session.task("Find the author.")
        builder.ledger.children == 1
    """

    def __init__(self) -> None:
        self._children: set[str] = set()
        self._roots: set[str] = set()
        self._program_tasks: set[str] = set()
        self._open_tasks: set[tuple[str, str]] = set()
        self._read = TextSum()
        self._returned = TextSum()
        self._from_hooks = TextSum()
        self._parent_tokens = 0
        self._child_tokens = 0
        self._has_unknown_usage = False
        self._cache = CacheUseFold()

    def apply(self, event: AnyEvent) -> None:
        """Add the next event."""
        self._cache.apply(event)
        if isinstance(event, RunStarted):
            self._add_run(event.brief)
        elif isinstance(event, TurnFinished):
            self._add_usage(event.run, event.message.usage)
        elif isinstance(event, TurnFailed):
            is_unknown = event.run in self._children and event.estimate.total_tokens > 0
            self._has_unknown_usage = self._has_unknown_usage or is_unknown
        elif isinstance(event, ToolCallStarted) and event.view == "run":
            self._open_tasks.add((event.run, event.call.id))
        elif isinstance(event, ToolCallFinished):
            self._add_result(event)
        elif isinstance(event, NoteInjected) and event.origin == "hook":
            self._from_hooks.add(event.text)
        elif isinstance(event, MessageDelivered):
            self._add_message(event)
        elif isinstance(event, RunFinished) and event.run in self._program_tasks:
            self._returned.add(event.report.text)

    def _add_run(self, brief: Brief) -> None:
        if brief.depth == 0:
            self._roots.add(brief.run_id)
            return
        self._children.add(brief.run_id)
        if not brief.parent:
            self._program_tasks.add(brief.run_id)

    def _add_usage(self, run: str, usage: Usage) -> None:
        if run in self._children:
            self._child_tokens += usage.total_tokens
        elif run in self._roots:
            self._parent_tokens = max(self._parent_tokens, usage.input_tokens)

    def _add_result(self, event: ToolCallFinished) -> None:
        key = (event.run, event.call_id)
        if event.result.context:
            self._from_hooks.add(event.result.context)
        is_report = key in self._open_tasks or "run" in event.result.detail
        self._open_tasks.discard(key)
        is_in_background = bool(event.result.detail.get("background"))  # reported by a message
        has_report = is_report and not event.refused and not is_in_background
        if event.run in self._children and not is_report:
            self._read.add(event.result.text)
        elif event.run in self._roots and has_report:
            self._returned.add(event.result.text)

    def _add_message(self, event: MessageDelivered) -> None:
        """Count a message from a child to the root run; background children report in messages."""
        if event.run in self._roots and event.origin in self._children:
            self._returned.add(event.text)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the events so far."""
        without_children = 0
        if self._parent_tokens:
            own_tokens = max(0, self._parent_tokens - self._returned.tokens)
            without_children = own_tokens + self._read.tokens
        return Ledger(
            children=len(set(map(find_first_id, self._children))),
            read_lines=self._read.lines,
            read_bytes=self._read.bytes,
            read_tokens=self._read.tokens,
            returned_lines=self._returned.lines,
            returned_bytes=self._returned.bytes,
            returned_tokens=self._returned.tokens,
            parent_tokens=self._parent_tokens,
            without_children_tokens=without_children,
            child_tokens=self._child_tokens,
            has_unknown_usage=self._has_unknown_usage,
            hook_bytes=self._from_hooks.bytes,
            hook_tokens=self._from_hooks.tokens,
            cache=self._cache.use,
        )


class PromptLedgers:
    """The ledgers of a session and of its last prompt, updated with each event."""

    def __init__(self) -> None:
        self._session = LedgerBuilder()
        self._prompt = LedgerBuilder()

    def apply(self, event: AnyEvent) -> None:
        if isinstance(event, RunStarted) and not event.brief.depth:
            self._prompt = LedgerBuilder()
        self._session.apply(event)
        self._prompt.apply(event)

    @property
    def session(self) -> Ledger:
        return self._session.ledger

    @property
    def prompt(self) -> Ledger:
        return self._prompt.ledger


def describe_ledger(ledger: Ledger) -> str:
    """Describe the ledger in sentences; figures with ~ or "about" are estimates."""
    added = f" Hooks added {describe_hook_text(ledger)}." if ledger.hook_bytes else ""
    if cache := describe_cache_use(ledger.cache):
        added += f" {cache}"
    if not ledger.children:
        return f"No children ran. Parent context: {ledger.parent_tokens:,} tokens.{added}"
    children = "1 child" if ledger.children == 1 else f"{ledger.children:,} children"
    read = _format_amount(ledger.read_lines, ledger.read_bytes, ledger.read_tokens)
    returned = _format_amount(ledger.returned_lines, ledger.returned_bytes, ledger.returned_tokens)
    text = f"{children} read {read}; {returned} came back."
    if ledger.parent_tokens:
        text += f" Parent context: {ledger.parent_tokens:,} tokens{_describe_savings(ledger)}."
    if ledger.has_unknown_usage:
        text += f" Children used at least {ledger.child_tokens:,} tokens: answers were cut off."
    return text + added


def describe_hook_text(ledger: Ledger) -> str:
    return f"{format_size(ledger.hook_bytes)} of text (~{_round_tokens(ledger.hook_tokens)} tokens)"


def _describe_savings(ledger: Ledger) -> str:
    without_children = ledger.without_children_tokens
    if without_children <= ledger.parent_tokens:
        return "; the reports are no shorter than what the children read"
    percent = round(100 * (1 - ledger.parent_tokens / without_children))
    share = f"{percent}%" if percent else "slightly"
    return f", {share} less than without children (about {_round_tokens(without_children)})"


def _format_amount(lines: int, size: int, tokens: int) -> str:
    return f"{count_noun(lines, 'line')} ({format_size(size)}, ~{_round_tokens(tokens)} tokens)"


def _round_tokens(tokens: int) -> str:
    """Round to three significant digits."""
    if tokens < 1000:
        return str(tokens)
    return f"{round(tokens, 3 - len(str(tokens))):,}"
