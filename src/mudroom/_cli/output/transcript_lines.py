"""A recorded session as lines: its run tree, and the transcript of one run."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import Struct

from ..._core.events import SessionOpened, StoredEvent
from ..._core.listings import count_noun
from ..._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    append_placeholders,
    join_texts,
)
from ..._projections.ledger import LedgerBuilder, describe_ledger
from ..._projections.run_tree import RunTree
from ..._projections.run_view import RunView
from ..._projections.safe_text import sanitize, sanitize_line
from ..._projections.transcript import build_transcript
from ...errors import UnknownName
from .text import UNICODE, Glyphs, Line, choose_agent_color, paint, truncate, wrap, wrap_line
from .tree_lines import TreeStyle, describe_outcome, format_figures, format_tree

# Lines and characters of a result to show; the rest is counted.
MAX_LINES, MAX_CHARACTERS = 20, 2000

# Characters of a tool call's argument to show.
MAX_ARGUMENT_CHARACTERS = 200


class TextStyle(Struct, frozen=True, kw_only=True):
    columns: int = 80
    color: bool = False
    glyphs: Glyphs = UNICODE
    wraps: bool = False
    full: bool = False


_PLAIN = TextStyle()


class SessionText:
    """A session as text: folder, runs with ids and outcomes, and ledger.

    A root run's text is complete before later ones are read.
    """

    def __init__(self, style: TextStyle = _PLAIN) -> None:
        self.tree = RunTree()
        self._ledger = LedgerBuilder()
        self._style = TreeStyle(columns=style.columns, show_ids=True, glyphs=style.glyphs)
        self._color = style.color
        self._wraps = style.wraps
        self._has_title = False
        self._shown_roots = 0

    def apply(self, event: StoredEvent) -> str:
        """Add an event; return the text that can no longer change."""
        root_count = len(self.tree.roots)
        self.tree.apply(event)
        self._ledger.apply(event)
        lines: list[Line] = []
        if isinstance(event, SessionOpened) and not self._has_title:
            self._has_title = True
            dot = self._style.glyphs.dot
            title = f"session {sanitize_line(event.session)}{dot}{sanitize_line(event.cwd)}"
            lines.append([(self._truncate(title), "bold")])
        if len(self.tree.roots) > root_count:
            lines += self._format_roots(self._has_ended)
        return paint(lines, color=self._color)

    def finish(self) -> str:
        lines = list(self._format_roots(lambda root: True))
        ledger = self._ledger.ledger
        if ledger.children:
            text = describe_ledger(ledger)
            rows = wrap(text, self._style.columns) if self._wraps else [text]
            lines += [[("", "")], *([(row, "")] for row in rows)]
        return paint(lines, color=self._color)

    def _format_roots(self, is_complete: Callable[[RunView], bool]) -> Iterator[Line]:
        """Yield the lines of the next root runs, up to an incomplete one."""
        for root in self.tree.roots[self._shown_roots :]:
            if not is_complete(root):
                return
            self._shown_roots += 1
            yield [("", "")]
            yield [(self._truncate(f"> {sanitize_line(root.title)}"), "bold")]
            yield from format_tree(self.tree, root, self._style)

    def _has_ended(self, root: RunView) -> bool:
        return all(run.report is not None for run in self.tree.walk(root.run_id))

    def _truncate(self, text: str) -> str:
        return truncate(text, self._style.columns, self._style.glyphs.more)


def render_tree(events: Iterable[StoredEvent], style: TextStyle = _PLAIN) -> str:
    text = SessionText(style)
    parts = [text.apply(event) for event in events]
    return "".join(parts) + text.finish()


def render_transcripts(
    tree: RunTree,
    events: Iterable[StoredEvent],
    run_ids: Collection[str],
    style: TextStyle = _PLAIN,
) -> Iterator[str]:
    """Yield each run as its model saw it: prompt, answers, tool calls, results.

    Raises UnknownName if the session has no such run.
    """
    by_run: dict[str, list[StoredEvent]] = {run_id: [] for run_id in run_ids}
    for event in events:
        if event.run in by_run:
            by_run[event.run].append(event)
    for run_id, run_events in by_run.items():
        run = tree.runs.get(run_id)
        if run is None:
            raise UnknownName("run", run_id, tree.runs)
        lines = format_transcript(run, run_events, style)
        if style.wraps:
            lines = [row for line in lines for row in wrap_line(line, style.columns)]
        yield paint(lines, color=style.color)


def format_transcript(
    run: RunView, run_events: Iterable[StoredEvent], style: TextStyle
) -> list[Line]:
    messages = build_transcript(run_events, run.run_id)
    return [
        *_format_heading(run, style.columns, style.glyphs),
        *_TranscriptFormatter(style.glyphs, style.full).format_messages(messages),
    ]


def _format_heading(run: RunView, columns: int, glyphs: Glyphs) -> Iterator[Line]:
    name = run.label if run.name else ""
    facts = [sanitize_line(text) for text in (run.agent, run.model, run.description)]
    title = glyphs.dot.join(filter(None, [f"run {run.run_id}", name, *facts]))
    yield [(truncate(title, columns, glyphs.more), f"bold {choose_agent_color(run.agent)}")]
    figures = glyphs.dot.join(format_figures(run, None))
    outcome = f"{describe_outcome(run) or 'unfinished'} ({figures})"
    yield [(truncate(outcome, columns, glyphs.more), "dim")]
    if run.continues:
        yield [(f"continues run {run.continues}", "dim")]


class _TranscriptFormatter:
    def __init__(self, glyphs: Glyphs, full: bool) -> None:
        self._glyphs = glyphs
        self._full = full

    def format_messages(self, messages: Iterable[Message]) -> Iterator[Line]:
        has_open_calls = False
        for message in messages:
            yield [("", "")]
            if isinstance(message, AssistantMessage):
                yield [("assistant", "bold green")]
                has_open_calls = bool(message.tool_calls)
            else:
                yield [("user", "bold cyan")]
                has_open_calls = False
            for block in join_texts(message.content):
                yield from self._format_block(block)
        if has_open_calls:
            yield [("", "")]
            yield [("Some of these tool calls have no result.", "yellow")]

    def _format_block(self, block: UserBlock | AssistantBlock) -> Iterator[Line]:
        match block:
            case ToolCallBlock():
                name = f"  {self._glyphs.arrow}{sanitize_line(block.name)}"
                yield [(name, "bold"), (self._format_arguments(block), "")]
            case ToolResultBlock():
                style = "bold red" if block.error else "bold"
                yield [(f"  result of {sanitize_line(block.name)}", style)]
                text = append_placeholders(block.text, block.images)
                yield from self._format_body(text, "red" if block.error else "dim")
            case ImageBlock():
                yield [(f"    {block.placeholder}", "dim")]
            case ThinkingBlock():
                yield from self._format_body(
                    block.text or "(thinking withheld by the provider)", "dim"
                )
            case ProviderBlock():
                yield from self._format_body(block.text, "dim")
            case TextBlock():
                for line in sanitize(block.text).rstrip("\n").split("\n"):
                    yield [(f"    {line}", "")]

    def _format_arguments(self, call: ToolCallBlock) -> str:
        if call.malformed:
            return f" {self._shorten(call.malformed)} (not JSON)"
        return "".join(
            f" {sanitize_line(name)}={self._format_value(value)}"
            for name, value in call.arguments.items()
        )

    def _format_value(self, value: object) -> str:
        if isinstance(value, str) and " " not in value and "\n" not in value:
            return self._shorten(value)
        return self._shorten(json.dumps(value, ensure_ascii=False))

    def _shorten(self, text: str) -> str:
        if self._full or len(text) <= MAX_ARGUMENT_CHARACTERS:
            return sanitize(text)
        shown = sanitize_line(text, MAX_ARGUMENT_CHARACTERS)
        return f"{shown}{self._glyphs.more} ({len(text):,} characters)"

    def _format_body(self, text: str, style: str) -> Iterator[Line]:
        lines = sanitize(text).rstrip("\n").split("\n")
        shown = lines
        if not self._full:
            shown = sanitize(text[:MAX_CHARACTERS]).rstrip("\n").split("\n")[:MAX_LINES]
        for line in shown:
            yield [(f"    {line}", style)]
        if not self._full and len(text) > MAX_CHARACTERS and len(lines) <= MAX_LINES:
            note = count_noun(len(text) - MAX_CHARACTERS, "more character")
        elif len(lines) > len(shown):
            note = count_noun(len(lines) - len(shown), "more line")
        else:
            return
        yield [(f"    {self._glyphs.more} {note}", "yellow")]
