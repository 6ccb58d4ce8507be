"""A recorded session to look back at: the tree of its runs with the ledger, and the transcript of any one of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ..._core.events import SessionOpened, StoredEvent
from ..._core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from ...errors import UnknownName
from ...projections.ledger import LedgerBuilder, describe_ledger
from ...projections.run_tree import RunTree, RunView
from ...projections.transcript import build_transcript
from .text import UNICODE, Glyphs, Line, agent_color, paint, sanitize, sanitize_line, truncate
from .tree_lines import TreeStyle, describe_outcome, format_figures, format_tree

MAX_LINES, MAX_CHARACTERS = 20, 2000
"""What is shown of one result; the rest is counted."""

MAX_ARGUMENT_CHARACTERS = 200
"""Characters shown of one argument of a call."""


def render_tree(
    events: Iterable[StoredEvent],
    *,
    columns: int = 80,
    color: bool = False,
    signs: Glyphs = UNICODE,
) -> str:
    """The session's folder, every run with its id and how it ended, and the ledger. `events` is read once.

    Arguments:
        columns: width of the screen. color: whether to style the words. signs: see `format.glyphs`.
    """
    tree, tally, lines = RunTree(), LedgerBuilder(), list[Line]()
    for event in events:
        tree.apply(event)
        tally.apply(event)
        if isinstance(event, SessionOpened) and not lines:
            lines.append(
                [
                    (
                        truncate(
                            f"session {sanitize_line(event.session)}{signs.dot}{sanitize_line(event.cwd)}",
                            columns,
                            signs.more,
                        ),
                        "bold",
                    )
                ]
            )
    for root in tree.roots:
        lines.append([("", "")])
        lines.append([(truncate(f"> {sanitize_line(root.title)}", columns, signs.more), "bold")])
        lines.extend(
            format_tree(tree, root, TreeStyle(columns=columns, show_ids=True, glyphs=signs))
        )
    if tally.ledger.children:
        lines += [[("", "")], [(describe_ledger(tally.ledger), "")]]
    return paint(lines, color=color)


def render_transcript(
    events: Iterable[StoredEvent],
    run_id: str,
    *,
    columns: int = 80,
    color: bool = False,
    signs: Glyphs = UNICODE,
    full: bool = False,
) -> str:
    """One run as its model saw it: prompt, answers, calls with their arguments, results. `events` is read once.

    Arguments:
        whole: results and arguments in full length; else the rest is counted in a note.

    Raises UnknownName if the session has no such run.
    """
    tree, own = RunTree(), list[StoredEvent]()
    for event in events:
        tree.apply(event)
        if event.run == run_id:
            own.append(event)
    run = tree.runs.get(run_id)
    if run is None:
        raise UnknownName("run", run_id, tree.runs)
    return paint(format_transcript(run, own, columns=columns, signs=signs, full=full), color=color)


def format_transcript(
    run: RunView, own: Iterable[StoredEvent], *, columns: int, signs: Glyphs, full: bool = False
) -> list[Line]:
    """The same as lines. `own`: the events of this run."""
    return [
        *_heading(run, columns, signs),
        *_Transcript(signs, full).messages(build_transcript(own, run.run_id)),
    ]


def _heading(run: RunView, columns: int, signs: Glyphs) -> Iterator[Line]:
    about = [
        f"run {run.run_id}",
        sanitize_line(run.agent),
        sanitize_line(run.model),
        sanitize_line(run.description),
    ]
    yield [
        (
            truncate(signs.dot.join(filter(None, about)), columns, signs.more),
            f"bold {agent_color(run.agent)}",
        )
    ]
    yield [
        (
            truncate(
                f"{describe_outcome(run) or 'unfinished'} ({signs.dot.join(format_figures(run, None))})",
                columns,
                signs.more,
            ),
            "dim",
        )
    ]
    if run.continues:
        yield [(f"goes on from run {run.continues}", "dim")]


class _Transcript:
    """Messages as lines; says so where something is left out."""

    def __init__(self, signs: Glyphs, whole: bool) -> None:
        self._signs, self._whole = signs, whole

    def messages(self, messages: Iterable[Message]) -> Iterator[Line]:
        answered = True
        for message in messages:
            yield [("", "")]
            if isinstance(message, AssistantMessage):
                yield [("assistant", "bold green")]
                answered = not message.tool_calls
            else:
                yield [("user", "bold cyan")]
                answered = True
            for block in message.content:
                yield from self._block(block)
        if not answered:
            yield [("", "")]
            yield [("The record ends before these calls all had a result.", "yellow")]

    def _block(
        self, block: TextBlock | ThinkingBlock | ToolCallBlock | ToolResultBlock
    ) -> Iterator[Line]:
        if isinstance(block, ToolCallBlock):
            yield [
                (f"  {self._signs.arrow}{sanitize_line(block.name)}", "bold"),
                (self._arguments(block), ""),
            ]
        elif isinstance(block, ToolResultBlock):
            yield [
                (f"  result of {sanitize_line(block.name)}", "bold red" if block.error else "bold")
            ]
            yield from self._body(block.text, "red" if block.error else "dim", cap=not self._whole)
        elif isinstance(block, ThinkingBlock):
            yield from self._body(
                block.text or "(thinking withheld by the provider)", "dim", cap=not self._whole
            )
        else:
            yield from self._body(block.text, "", cap=False)

    def _arguments(self, call: ToolCallBlock) -> str:
        if call.malformed:
            return f" {self._short(call.malformed)} (not JSON)"
        return "".join(
            f" {sanitize_line(name)}={self._value(value)}" for name, value in call.arguments.items()
        )

    def _value(self, value: object) -> str:
        text = (
            json.dumps(value, ensure_ascii=False)
            if not isinstance(value, str) or " " in value or "\n" in value
            else value
        )
        return self._short(text)

    def _short(self, text: str) -> str:
        if self._whole or len(text) <= MAX_ARGUMENT_CHARACTERS:
            return sanitize(text)
        return f"{sanitize_line(text, MAX_ARGUMENT_CHARACTERS)}{self._signs.more} ({len(text):,} characters)"

    def _body(self, text: str, style: str, *, cap: bool) -> Iterator[Line]:
        lines = sanitize(text).rstrip("\n").split("\n")
        shown = (
            sanitize(text[:MAX_CHARACTERS]).rstrip("\n").split("\n")[:MAX_LINES] if cap else lines
        )
        for line in shown:
            yield [(f"    {line}", style)]
        if len(text) > MAX_CHARACTERS and cap and len(lines) <= MAX_LINES:
            yield [
                (f"    {self._signs.more} {len(text) - MAX_CHARACTERS:,} more characters", "yellow")
            ]
        elif len(lines) > len(shown):
            yield [(f"    {self._signs.more} {len(lines) - len(shown):,} more lines", "yellow")]
