"""Tasks of the board on the screens of a run: claims of the runs, and tasks of `board run`."""

from __future__ import annotations

import io

import pytest
from tests.cli.test_live import Clock
from tests.cli.test_panel import make_panel

from mudroom._cli.output.live_tree import LiveTree
from mudroom._cli.output.text import measure_width
from mudroom._core.events import StoredEvent, ToolCallFinished
from mudroom._core.tools import ToolResult
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import run_finished, run_started, turn_started


def change(run: str, task: int, subject: str, *, is_claimed: bool) -> ToolCallFinished:
    detail = {"board_task": {"id": task, "subject": subject, "is_claimed": is_claimed}}
    result = ToolResult("changed", detail=detail)
    return ToolCallFinished(at=1, run=run, call_id="c", name="board_update", result=result)


def make_claims(subject: str) -> list[StoredEvent]:
    return [
        run_started("1"),
        turn_started("1"),
        run_started("1.1.1", "1", name="alice", prompt="work"),
        change("1.1.1", 2, subject, is_claimed=True),
        change("1.1.1", 3, "given back", is_claimed=True),
        change("1.1.1", 3, "given back", is_claimed=False),
    ]


def draw(events: list[StoredEvent], columns: int = 80) -> list[str]:
    lines = make_panel(events).format_lines(columns, 30)
    return ["".join(text for text, _ in line) for line in lines]


def test_a_claimed_task_has_a_row_until_its_run_ends() -> None:
    events = make_claims("Write the parser")
    assert draw(events)[-1] == "[>] #2 Write the parser · alice"
    assert not any("#2" in row for row in draw([*events, run_finished("1.1.1")]))


@pytest.mark.parametrize("columns", [10, 20, 40, 80, 200])
def test_a_long_subject_does_not_break_the_row(columns: int) -> None:
    rows = draw(make_claims("统计行数\x1b[2J" * 40), columns)
    assert max(map(measure_width, rows)) <= columns


def test_the_live_tree_shows_all_tasks_that_work_at_the_same_time() -> None:
    stream = io.StringIO()
    screen = LiveTree(stream, RunTree(), color=False, now=Clock(30.0), size=lambda: (100, 24))
    for event in (
        run_started("1", depth=1, description="#1 Read the paper"),
        run_started("2", depth=1, description="#2 Write the parser"),
        run_started("3", depth=1, description="#3 Test it"),
        turn_started("2", turn=4),
        run_finished("3"),
    ):
        screen.on_event(event)
    screen.draw()
    rows = stream.getvalue().splitlines()
    assert [row.partition(" · 0 tools")[0] for row in rows] == [
        "● #1 Read the paper · thinking…",
        "● #2 Write the parser · turn 4 · thinking…",
    ]
