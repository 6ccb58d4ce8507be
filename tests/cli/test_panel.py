"""The panel above the input line: child runs, selection, transcripts, questions, the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from mudroom._cli.interactive.conversation import Conversation
from mudroom._cli.interactive.panel import Panel
from mudroom._cli.interactive.questions.approvals import ApprovalPrompt
from mudroom._cli.interactive.questions.choice import Choice, match_answer
from mudroom._cli.interactive.status_line import StatusLine
from mudroom._cli.output.scrollback import Scrollback
from mudroom._cli.output.text import (
    ASCII,
    UNICODE,
    Glyphs,
    Line,
    measure_width,
    paint,
    wrap_last_lines,
)
from mudroom._cli.output.tree_lines import TreeStyle, format_tree
from mudroom._core.budgets import Budget
from mudroom._core.events import AnyEvent, Delta
from mudroom._core.messages import ToolCallBlock, Usage
from mudroom._core.ports import ApprovalRequest
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call_finished,
    tool_call_started,
    turn_finished,
    turn_started,
)

NOW = 30.0


def make_events(first: str, second: str) -> list[AnyEvent]:
    """Return events of a root run with one working and one finished child."""
    tasks = [ToolCallBlock(f"t1.1.{n}", "task", {"prompt": "p"}) for n in (1, 2)]
    reading = ToolCallBlock("r", "read", {"file_path": "src/part.py"})
    return [
        run_started("1", agent="main", prompt="Look around", at=1),
        turn_started("1", at=1),
        turn_finished("1", *tasks, usage=Usage(3000, 100), at=2),
        *(tool_call_started("1", task) for task in tasks),
        run_started(
            "1.1.1", "1", description=first, call_id="t1.1.1", budget=Budget(turns=10), at=1
        ),
        run_started("1.1.2", "1", description=second, agent="general", call_id="t1.1.2", at=1),
        turn_started("1.1.1", turn=4, at=3),
        turn_finished("1.1.1", reading, turn=4, usage=Usage(40_000, 1_400), at=5),
        tool_call_started("1.1.1", reading, at=5),
        run_finished("1.1.2"),
    ]


@dataclass
class ShownLines:
    queued: tuple[str, ...] = ()


@dataclass
class ShownConversation:
    """The part of a conversation that the panel shows, with a run that works."""

    events: Sequence[AnyEvent]
    pending_text: str = ""
    is_busy: bool = True
    background_work: tuple[str, ...] = ()
    lines: ShownLines = field(default_factory=lambda: ShownLines())
    printed_runs: tuple[str, ...] = ()
    approvals: ApprovalPrompt = field(default_factory=lambda: ApprovalPrompt(WaitingUI()))
    tree: RunTree = field(default_factory=RunTree)
    status: StatusLine = field(default_factory=StatusLine)

    @property
    def writer(self) -> ShownConversation:
        return self

    def format_pending(self, columns: int, height: int) -> list[Line]:
        rows = wrap_last_lines(self.pending_text, columns, height) if height > 0 else []
        return [[(row, "")] for row in rows]


def make_panel(
    events: Sequence[AnyEvent],
    *,
    pending: str = "",
    glyphs: Glyphs = UNICODE,
    queued: tuple[str, ...] = (),
) -> Panel:
    conversation = ShownConversation(events, pending, lines=ShownLines(queued))
    panel = Panel(glyphs)
    panel.conversation = cast("Conversation", conversation)
    for event in events:
        conversation.tree.apply(event)
        panel.apply(event)
    return panel


def test_the_tree_has_budget_bars_and_marks_the_selected_child() -> None:
    tree = RunTree.from_events(make_events("read the parts", "count the lines"))

    def draw(glyphs: Glyphs = UNICODE, *, color: bool = False) -> list[str]:
        style = TreeStyle(columns=80, now=NOW, glyphs=glyphs, selected="1.1.2")
        return paint(format_tree(tree, tree.roots[-1], style), color=color).splitlines()

    assert draw() == [
        "● turn 1 · 2 tasks: 1 running, 1 done · 3.1k tokens · 44.5k with children · 29s",
        "├─ explore  read the parts",
        "│  ⎿ read src/part.py · ▰▰▱▱▱ · 0 tools · 41.4k tokens · 29s",
        "└─▸general  count the lines",
        "   ⎿ Done (0 tool uses · 0 tokens · 8.0s)",
    ]
    assert draw(ASCII)[2] == "|  > read src/part.py - ##--- - 0 tools - 41.4k tokens - 29s"
    assert "\x1b[1;32;7mgeneral" in draw(color=True)[3]


@pytest.mark.parametrize("columns", [1, 2, 7, 20, 80, 200])
def test_no_line_is_wider_than_the_screen(columns: int) -> None:
    queued = ("w" * 300, "四" * 300, "c", "d")
    events = make_events("阅读所有的文件 and more", "b" * 300)
    panel = make_panel(events, pending="词" * 500, queued=queued)
    for lines in (panel.format_lines(columns, 20), panel.format_lines(columns, 3)):
        assert all(
            sum(measure_width(words) for words, _ in line) <= max(columns, 2) for line in lines
        )
    assert len(panel.format_lines(columns, 8)) <= 8 + 4


def test_the_selection_moves_through_the_children_that_work() -> None:
    events = make_events("a", "b")
    events[-1:] = [
        run_started("1.1.3", "1", description="c", call_id="t1.1.3", at=1),
        run_finished("1.1.2"),
    ]
    panel = make_panel(events)
    panel.format_lines(80, 20)
    panel.open_tree()
    order = [panel.selected_run_id]
    for step in (-1, -1, 1, 1):
        panel.move_selection(step)
        order.append(panel.selected_run_id)
        panel.format_lines(80, 20)
    assert order == ["1.1.3", "1.1.1", "1.1.3", "1.1.1", "1.1.3"]


def test_the_neighbour_of_a_child_that_ends_is_selected() -> None:
    names = ("1.1.1", "1.1.2", "1.1.3")
    events = [run_started("1", agent="main", at=1), turn_started("1", at=1)]
    events += [run_started(name, "1", description=name, at=1) for name in names]
    panel = make_panel(events)
    panel.format_lines(80, 20)
    panel.open_tree()
    selected = [panel.selected_run_id]
    for name in ("1.1.3", "1.1.1", "1.1.2"):
        ending = run_finished(name)
        assert panel.conversation
        panel.conversation.tree.apply(ending)
        panel.apply(ending)
        panel.format_lines(80, 20)
        selected.append(panel.selected_run_id)
    assert selected == ["1.1.3", "1.1.2", "1.1.2", ""]
    assert panel.is_steering and panel.key_hint == "no child works, esc: back"
    panel.close_tree()
    assert not panel.is_steering


def test_an_open_transcript_shows_past_and_new_events() -> None:
    events = make_events("read the parts", "b")
    panel = make_panel(events)
    panel.open_transcript("1.1.1")
    shown = paint(panel.format_lines(80, 40), color=False)
    assert "→ read file_path=src/part.py" in shown and "result of read" not in shown
    for event in (
        tool_call_finished("1.1.1", "r", "the\tmud", at=10),
        turn_started("1.1.1", turn=5, at=11),
        tool_call_finished("1.1.9", "r", "of another", at=11),
        turn_finished("1.1.1", text="I saw it", turn=5, at=12),
    ):
        panel.apply(event)
    shown = paint(panel.format_lines(80, 40), color=False)
    assert (
        "the mud" in shown
        and "I saw it" in shown
        and "of another" not in shown
        and "\t" not in shown
    )


async def test_a_long_question_leaves_a_few_rows_to_the_children_and_scrolls_to_its_end() -> None:
    panel = make_panel(make_events("a", "b"))
    body: list[Line] = [[(f"row {n}", "")] for n in range(90)]
    panel.choice = Choice("Which?", [("yes", "yes"), ("no", "no")], body=body)
    rows: list[str] = []
    for _ in range(20):
        panel.move_selection(10)
        rows = ["".join(text for text, _ in line) for line in panel.format_lines(60, 18)]
    assert len(rows) == 18 and "explore" in rows[1] and "row 89" in rows
    assert rows[-2:] == ["▸ 1. yes", "  2. no"]


async def test_a_question_is_below_the_running_children_and_is_answered_once() -> None:
    panel = make_panel(make_events("a", "b"))
    tree = panel.format_lines(40, 10)
    panel.choice = choice = Choice("Which?", [("x", "the first"), ("y", "the second\x1b[2J")])
    question = ["Which?", "▸ 1. the first", "  2. the second"]
    shown = panel.format_lines(40, 10)
    assert shown[: len(tree)] == tree and len(tree) > 2
    assert [line[0][0] for line in shown[len(tree) :]] == question
    assert [line[0][0] for line in panel.format_lines(40, 3)][-3:] == question
    panel.move_selection(-1)
    assert choice.index == 1
    panel.answer_choice("y")
    panel.answer_choice("the next line")
    assert await choice.result == "y" and panel.choice is None


async def test_the_row_of_a_child_says_that_its_call_waits_for_the_user() -> None:
    panel = make_panel(make_events("a", "b"))
    assert isinstance(panel.conversation, ShownConversation)
    ui = WaitingUI()
    panel.conversation.approvals = approvals = ApprovalPrompt(ui)
    request = ApprovalRequest("1.1.1", "explore", "bash", {"command": "make"}, why="no rule")
    asking = asyncio.create_task(approvals.questions.decide(request))
    await ui.is_asked.wait()
    rows = ["".join(text for text, _ in line) for line in panel.format_lines(80, 20)]
    row = next(row for row in rows if "waits for your " in row)
    assert "quiet" not in row
    asking.cancel()
    await asyncio.wait([asking])
    assert approvals.asking_runs == []


class WaitingUI:
    """A UI whose user does not answer."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.scrollback = Scrollback(write=list[str]().append, columns=lambda: 80)

    async def choose(self, *_: object, **__: object) -> str | None:
        self.is_asked.set()
        await asyncio.Event().wait()
        return None


def test_streaming_text_is_wrapped_between_words() -> None:
    events = [
        *make_events("a", "b"),
        *(tool_call_finished("1", f"t1.1.{n}", name="task", at=10) for n in (1, 2)),
        tool_call_finished("1.1.1", "r", "    one two three four five six", at=10),
        Delta(at=10, run="1.1.1", kind="text", text="what I found"),
        Delta(at=10, run="1", kind="text", text="So"),
    ]
    panel = make_panel(events, pending="a word should not be cut in two")
    shown = paint(panel.format_lines(24, 20), color=False).splitlines()
    assert shown[:2] == ["a word should not be cut", "in two"]
    assert "answering…" in shown[2] and "⎿ what I found" in paint(
        panel.format_lines(80, 20), color=False
    )
    panel.open_transcript("1.1.1")
    assert "        one two three four\n        five six" in paint(
        panel.format_lines(26, 20), color=False
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", "yes"),
        ("YES", "yes"),
        ("1", "yes"),
        ("2", "session"),
        ("n", "no"),
        ("No", "no"),
        ("3", "no"),
        ("4", None),
        ("0", None),
        ("yes, but not here", None),
        ("", None),
    ],
)
def test_a_typed_answer_names_an_item(text: str, value: str | None) -> None:
    items = [("yes", "yes"), ("session", "yes, also for the rest of this session"), ("no", "no")]
    assert match_answer(items, text) == value
