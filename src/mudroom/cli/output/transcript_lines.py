"""A recorded session to look back at: the tree of its runs with the ledger, and the transcript of any one of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ..._core.events import SessionOpened, Stored
from ..._core.messages import Assistant, Call, Message, Result, Text, Thinking
from ...errors import UnknownName
from ...projections.ledger import Tally, sentence
from ...projections.run_tree import RunView, Tree
from ...projections.transcript import transcript
from .text import UNICODE, Glyphs, Line, clean, color_of, cut, one_line, paint
from .tree_lines import Look, figures, outcome, rows

LINES, CHARACTERS = 20, 2000
"""What is shown of one result; the rest is counted."""

ARGUMENT = 200
"""Characters shown of one argument of a call."""


def render_tree(
    events: Iterable[Stored], *, columns: int = 80, color: bool = False, signs: Glyphs = UNICODE
) -> str:
    """The session's folder, every run with its id and how it ended, and the ledger. `events` is read once.

    Arguments:
        columns: width of the screen. color: whether to style the words. signs: see `format.glyphs`.
    """
    tree, tally, lines = Tree(), Tally(), list[Line]()
    for event in events:
        tree.apply(event)
        tally.apply(event)
        if isinstance(event, SessionOpened) and not lines:
            lines.append(
                [
                    (
                        cut(
                            f"session {one_line(event.session)}{signs.dot}{one_line(event.cwd)}",
                            columns,
                            signs.more,
                        ),
                        "bold",
                    )
                ]
            )
    for root in tree.roots:
        lines.append([("", "")])
        lines.append([(cut(f"> {one_line(root.title)}", columns, signs.more), "bold")])
        lines.extend(rows(tree, root, Look(columns=columns, ids=True, signs=signs)))
    if tally.ledger.children:
        lines += [[("", "")], [(sentence(tally.ledger), "")]]
    return paint(lines, color=color)


def render_transcript(
    events: Iterable[Stored],
    run_id: str,
    *,
    columns: int = 80,
    color: bool = False,
    signs: Glyphs = UNICODE,
    whole: bool = False,
) -> str:
    """One run as its model saw it: prompt, answers, calls with their arguments, results. `events` is read once.

    Arguments:
        whole: results and arguments in full length; else the rest is counted in a note.

    Raises UnknownName if the session has no such run.
    """
    tree, own = Tree(), list[Stored]()
    for event in events:
        tree.apply(event)
        if event.run == run_id:
            own.append(event)
    run = tree.runs.get(run_id)
    if run is None:
        raise UnknownName("run", run_id, tree.runs)
    return paint(transcript_lines(run, own, columns=columns, signs=signs, whole=whole), color=color)


def transcript_lines(
    run: RunView, own: Iterable[Stored], *, columns: int, signs: Glyphs, whole: bool = False
) -> list[Line]:
    """The same as lines. `own`: the events of this run."""
    return [
        *_heading(run, columns, signs),
        *_Transcript(signs, whole).messages(transcript(own, run.run_id)),
    ]


def _heading(run: RunView, columns: int, signs: Glyphs) -> Iterator[Line]:
    about = [
        f"run {run.run_id}",
        one_line(run.agent),
        one_line(run.model),
        one_line(run.description),
    ]
    yield [
        (
            cut(signs.dot.join(filter(None, about)), columns, signs.more),
            f"bold {color_of(run.agent)}",
        )
    ]
    yield [
        (
            cut(
                f"{outcome(run) or 'unfinished'} ({signs.dot.join(figures(run, None))})",
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
            if isinstance(message, Assistant):
                yield [("assistant", "bold green")]
                answered = not message.calls
            else:
                yield [("user", "bold cyan")]
                answered = True
            for block in message.content:
                yield from self._block(block)
        if not answered:
            yield [("", "")]
            yield [("The record ends before these calls all had a result.", "yellow")]

    def _block(self, block: Text | Thinking | Call | Result) -> Iterator[Line]:
        if isinstance(block, Call):
            yield [
                (f"  {self._signs.arrow}{one_line(block.name)}", "bold"),
                (self._arguments(block), ""),
            ]
        elif isinstance(block, Result):
            yield [(f"  result of {one_line(block.name)}", "bold red" if block.error else "bold")]
            yield from self._body(block.text, "red" if block.error else "dim", cap=not self._whole)
        elif isinstance(block, Thinking):
            yield from self._body(
                block.text or "(thinking withheld by the provider)", "dim", cap=not self._whole
            )
        else:
            yield from self._body(block.text, "", cap=False)

    def _arguments(self, call: Call) -> str:
        if call.malformed:
            return f" {self._short(call.malformed)} (not JSON)"
        return "".join(
            f" {one_line(name)}={self._value(value)}" for name, value in call.arguments.items()
        )

    def _value(self, value: object) -> str:
        text = (
            json.dumps(value, ensure_ascii=False)
            if not isinstance(value, str) or " " in value or "\n" in value
            else value
        )
        return self._short(text)

    def _short(self, text: str) -> str:
        if self._whole or len(text) <= ARGUMENT:
            return clean(text)
        return f"{one_line(text, ARGUMENT)}{self._signs.more} ({len(text):,} characters)"

    def _body(self, text: str, style: str, *, cap: bool) -> Iterator[Line]:
        lines = clean(text).rstrip("\n").split("\n")
        shown = clean(text[:CHARACTERS]).rstrip("\n").split("\n")[:LINES] if cap else lines
        for line in shown:
            yield [(f"    {line}", style)]
        if len(text) > CHARACTERS and cap and len(lines) <= LINES:
            yield [(f"    {self._signs.more} {len(text) - CHARACTERS:,} more characters", "yellow")]
        elif len(lines) > len(shown):
            yield [(f"    {self._signs.more} {len(lines) - len(shown):,} more lines", "yellow")]
