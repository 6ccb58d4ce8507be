"""Named children that do not work: one row each, on the screens of a run that works."""

from __future__ import annotations

import io

import pytest
from tests.cli.test_live import Clock
from tests.cli.test_names import CHINESE, LONG, make_team
from tests.cli.test_panel import make_panel
from tests.projections.test_current_team import send

from mudroom._cli.interactive.panel import Panel
from mudroom._cli.output.live_tree import MAX_IDLE, LiveTree
from mudroom._cli.output.text import ASCII, UNICODE, Line, measure_width
from mudroom._core.events import StoredEvent
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import run_finished, run_started, turn_started


def make_idle_team(name: str) -> list[StoredEvent]:
    return [*make_team(name), run_finished("1.1.1~2"), send("1", name, "1.1.1", "m1")]


def draw(panel: Panel, columns: int = 80) -> list[str]:
    return to_text(panel.format_lines(columns, 30))


def to_text(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_the_panel_has_one_row_for_an_idle_name() -> None:
    assert draw(make_panel(make_idle_team("alice")))[1:] == [
        "└─ explore  Count",
        "   ⎿ Done (0 tool uses · 0 tokens · 9.0s)",
        "@alice  idle, 2 runs, 1 unread · 0 tokens",
    ]


def test_the_idle_row_is_selected_and_takes_a_message() -> None:
    panel = make_panel(make_idle_team("alice"))
    draw(panel)
    panel.open_tree()
    assert panel.selected_run_id == "1.1.1~2"
    assert draw(panel)[-1].startswith("▸ @alice")
    assert panel.key_hint == "enter: open, m: message, esc: back"
    panel.target_run_id = panel.selected_run_id
    assert panel.target_name == "alice"


def test_an_open_child_shows_its_unread_messages_whole() -> None:
    events = make_idle_team("alice")
    panel = make_panel(events)
    panel.open_transcript("1.1.1~2", [each for each in events if each.run == "1.1.1~2"])
    rows = draw(panel)
    assert rows[-2:] == ["message from user, not read yet", "    text of m1"]
    assert "And now?" in "\n".join(rows)
    assert panel.key_hint == "m: message, esc: back"


def test_the_live_tree_shows_idle_names_until_the_run_ends() -> None:
    stream = io.StringIO()
    screen = LiveTree(stream, RunTree(), color=False, now=Clock(30.0), size=lambda: (80, 24))
    for event in make_idle_team("alice"):
        screen.on_event(event)
    screen.draw()
    assert "@alice  idle, 2 runs, 1 unread" in stream.getvalue()
    stream.truncate(0)
    screen.draw(final=True)
    assert "@alice" not in stream.getvalue() and "alice, run 2" in stream.getvalue()


def test_an_idle_name_of_an_earlier_prompt_has_a_row_while_the_next_prompt_works() -> None:
    later = [run_finished("1"), run_started("2", continues="1"), turn_started("2")]
    rows = draw(make_panel([*make_idle_team("alice"), *later]))
    assert rows[1:] == ["@alice  idle, 2 runs, 1 unread · 0 tokens"]


def test_only_some_of_many_idle_names_have_rows() -> None:
    events: list[StoredEvent] = [run_started("1"), turn_started("1")]
    for number in range(1, 40):
        events.append(run_started(f"1.1.{number}", "1", name=f"name-{number}"))
        events.append(run_finished(f"1.1.{number}"))
    rows = draw(make_panel(events))
    assert sum(row.startswith("@") for row in rows) == MAX_IDLE


@pytest.mark.parametrize("name", [CHINESE, LONG])
@pytest.mark.parametrize("columns", [10, 20, 40, 80, 200])
def test_no_name_breaks_the_row(name: str, columns: int) -> None:
    for glyphs in (ASCII, UNICODE):
        panel = make_panel(make_idle_team(name), glyphs=glyphs)
        assert max(map(measure_width, draw(panel, columns))) <= columns
