"""A recorded session as lines: the tree of its runs, and the transcript of one run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from ..._core.counts import count_noun
from ..._core.events import SessionOpened, StoredEvent
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
from ...errors import UnknownName
from ...projections.ledger import Ledger, describe_ledger
from ...projections.run_tree import RunTree, RunView
from ...projections.safe_text import sanitize, sanitize_line
from ...projections.transcript import build_transcript
from .text import UNICODE, Glyphs, Line, choose_agent_color, paint, truncate
from .tree_lines import TreeStyle, describe_outcome, format_figures, format_tree

MAX_LINES, MAX_CHARACTERS = 20, 2000
"""Lines and characters shown of one result; the rest is counted."""

MAX_ARGUMENT_CHARACTERS = 200
"""Characters shown of one argument of a tool call."""


def render_tree(
    events: Sequence[StoredEvent],
    *,
    columns: int = 80,
    color: bool = False,
    glyphs: Glyphs = UNICODE,
) -> str:
    """Render the session's folder, its runs with their ids and outcomes, and the ledger.

    Arguments:
        columns: width of the screen.
        color: use colors.
    """
    tree = RunTree.from_events(events)
    lines: list[Line] = []
    opened = next((event for event in events if isinstance(event, SessionOpened)), None)
    if opened:
        title = f"session {sanitize_line(opened.session)}{glyphs.dot}{sanitize_line(opened.cwd)}"
        lines.append([(truncate(title, columns, glyphs.more), "bold")])
    style = TreeStyle(columns=columns, show_ids=True, glyphs=glyphs)
    for root in tree.roots:
        title = truncate(f"> {sanitize_line(root.title)}", columns, glyphs.more)
        lines += [[("", "")], [(title, "bold")], *format_tree(tree, root, style)]
    ledger = Ledger.from_events(events)
    if ledger.children:
        lines += [[("", "")], [(describe_ledger(ledger), "")]]
    return paint(lines, color=color)


def render_transcript(
    events: Sequence[StoredEvent],
    run_id: str,
    *,
    columns: int = 80,
    color: bool = False,
    glyphs: Glyphs = UNICODE,
    full: bool = False,
) -> str:
    """Render one run as its model saw it: prompt, answers, tool calls, results.

    Arguments:
        full: show results and arguments in full; otherwise the rest is counted in a note.

    Raises UnknownName if the session has no such run.
    """
    tree = RunTree.from_events(events)
    run = tree.runs.get(run_id)
    if run is None:
        raise UnknownName("run", run_id, tree.runs)
    run_events = [event for event in events if event.run == run_id]
    lines = format_transcript(run, run_events, columns=columns, glyphs=glyphs, full=full)
    return paint(lines, color=color)


def format_transcript(
    run: RunView,
    run_events: Iterable[StoredEvent],
    *,
    columns: int,
    glyphs: Glyphs,
    full: bool = False,
) -> list[Line]:
    """Format the transcript of a run as lines.

    Arguments:
        run_events: events of this run.
    """
    messages = build_transcript(run_events, run.run_id)
    return [
        *_format_heading(run, columns, glyphs),
        *_TranscriptFormatter(glyphs, full).format_messages(messages),
    ]


def _format_heading(run: RunView, columns: int, glyphs: Glyphs) -> Iterator[Line]:
    names = [sanitize_line(text) for text in (run.agent, run.model, run.description)]
    title = glyphs.dot.join([f"run {run.run_id}", *filter(None, names)])
    yield [(truncate(title, columns, glyphs.more), f"bold {choose_agent_color(run.agent)}")]
    figures = glyphs.dot.join(format_figures(run, None))
    outcome = f"{describe_outcome(run) or 'unfinished'} ({figures})"
    yield [(truncate(outcome, columns, glyphs.more), "dim")]
    if run.continues:
        yield [(f"continues run {run.continues}", "dim")]


class _TranscriptFormatter:
    """Formatter of messages as lines, with a note where something is left out."""

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
        """Yield the lines of a text, shortened unless the transcript is shown in full."""
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
