"""Names of children on the screens: those that work, those that are idle, and claimed tasks."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.cli.test_first_request import SESSION
from tests.cli.test_live import Clock
from tests.cli.test_panel import make_panel
from tests.projections.test_current_team import send
from tests.transcripts import render_transcript

from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._cli.actions.export import render_session_markdown
from mudroom._cli.actions.prompts import expand_mentions, split_message
from mudroom._cli.actions.show_session import print_session
from mudroom._cli.interactive.panel import MAX_TARGET_COLUMNS, Panel
from mudroom._cli.interactive.questions.question_lines import format_call, format_title
from mudroom._cli.output.child_names import make_child_name
from mudroom._cli.output.live_tree import MAX_IDLE, LiveTree
from mudroom._cli.output.plain_progress import PlainProgress
from mudroom._cli.output.text import ASCII, UNICODE, Line, measure_width
from mudroom._cli.output.transcript_lines import TextStyle, render_tree
from mudroom._core.events import AnyEvent, StoredEvent, ToolCallFinished
from mudroom._core.ports import ApprovalRequest
from mudroom._core.tools import ToolResult
from mudroom._projections.run_tree import RunTree
from mudroom.errors import UnknownName
from mudroom.testing.event_builders import run_finished, run_started, turn_started

NAMES = ["小红", "a-name-that-has-forty-characters-in-it-x", "\x1b]0;owned\x07al\nice"]


def make_team(name: str) -> list[StoredEvent]:
    """Return events of a root run with a child without a name and two runs of a named one."""
    return [
        run_started("1", agent="main", prompt="Look around"),
        turn_started("1"),
        run_started("1.1.1", "1", prompt="Find the door", name=name, agent="general"),
        run_finished("1.1.1"),
        run_started("1.1.2", "1", prompt="Count"),
        run_finished("1.1.2"),
        run_started(
            "1.1.1~2", "1", prompt="And now?", name=name, agent="general", continues="1.1.1"
        ),
        turn_started("1.1.1~2"),
    ]


def draw(panel: Panel, columns: int = 80) -> list[str]:
    return to_text(panel.format_lines(columns, 30))


def to_text(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def draw_live(events: Iterable[AnyEvent]) -> tuple[LiveTree, io.StringIO]:
    """Return a live tree that has drawn the events, and what it has written."""
    stream = io.StringIO()
    screen = LiveTree(stream, RunTree(), color=False, now=Clock(30.0), size=lambda: (100, 24))
    for event in events:
        screen.on_event(event)
    screen.draw()
    return screen, stream


def test_a_label_is_the_name_with_the_number_of_a_later_run_or_agent_and_id() -> None:
    tree = RunTree.from_events(make_team("alice"))
    runs = ("1.1.1", "1.1.2", "1.1.1~2")
    assert [tree.runs[run].label for run in runs] == ["alice", "explore#1.1.2", "alice, run 2"]
    assert [tree.runs[run].short_label for run in runs] == ["alice", "explore", "alice, run 2"]


def test_a_second_child_with_the_same_name_begins_with_its_first_run() -> None:
    events = [*make_team("alice"), run_finished("1.1.1~2")]
    events.append(run_started("1.2.1", "1", name="alice"))
    assert RunTree.from_events(events).runs["1.2.1"].label == "alice"


def test_the_tree_and_the_transcript_show_the_name_and_the_id() -> None:
    tree = render_tree(make_team("alice"))
    assert "├─ alice (1.1.1)  Find the door\n" in tree
    assert "├─ explore#1.1.2  Count\n" in tree
    assert "└─ alice, run 2 (1.1.1~2)  And now?\n" in tree
    transcript = render_transcript(make_team("alice"), "1.1.1~2")
    assert transcript.startswith("run 1.1.1~2 · alice, run 2 · general · offline\n")
    assert "\ncontinues run 1.1.1\n" in transcript


def test_progress_lines_and_markdown_show_the_name() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, RunTree())
    for event in [*make_team("alice"), run_finished("1.1.1~2")]:
        progress.on_event(event)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "> task (alice): Find the door"
    assert lines[1].startswith("alice: Done (")
    assert lines[4] == "> task (alice, run 2): And now?"
    assert lines[5].startswith("alice, run 2: Done (")
    page = "".join(render_session_markdown(make_team("alice")))
    assert "### Run 1.1.1~2 · alice, run 2 · And now?\n" in page


def test_a_question_names_the_child_that_asks() -> None:
    arguments = {"command": "make"}
    request = ApprovalRequest("1.1.1", "general", "bash", arguments, "no rule", name="alice")
    assert format_title(request).startswith("alice wants to ")
    assert format_call(request) == "alice: bash make"
    unnamed = ApprovalRequest("1.1.1", "general", "bash", arguments, "no rule")
    assert format_call(unnamed) == "general#1.1.1: bash make"


def test_a_mention_is_a_name_in_any_spelling() -> None:
    assert split_message("@Alice: look", ["alice"]) == ("alice", "look")
    prompt = expand_mentions("Ask @Alice.", folder="/nowhere", agents=[], teammates=["alice"])
    assert prompt.endswith("Send this to alice with the send_message tool.")


def test_show_prints_all_runs_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path))

    async def write() -> None:
        journal = await SqliteStore(tmp_path).create(SESSION)
        await journal.append(*make_team("alice"))
        await journal.close()

    asyncio.run(write())
    print_session(SESSION, "@Alice")
    shown = capsys.readouterr().out
    assert "\nrun 1.1.1 · alice · general" in shown
    assert "\nrun 1.1.1~2 · alice, run 2 · general" in shown
    with pytest.raises(UnknownName):
        print_session(SESSION, "bob")


def make_idle_team(name: str) -> list[StoredEvent]:
    return [*make_team(name), run_finished("1.1.1~2"), send("1", name, "1.1.1", "m1")]


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
    screen, stream = draw_live(make_idle_team("alice"))
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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [10, 20, 80, 200])
def test_no_name_breaks_a_screen(name: str, columns: int) -> None:
    for glyphs in (ASCII, UNICODE):
        idle = make_panel(make_idle_team(name), glyphs=glyphs)
        assert max(map(measure_width, draw(idle, columns))) <= columns
    panel = make_panel(make_team(name))
    rows = draw(panel, columns)
    panel.target_run_id = "1.1.1~2"
    style = TextStyle(columns=max(columns, 20))
    tree, _, _ = render_tree(make_team(name), style).rpartition("\n\n")
    text = "\n".join([tree, panel.target_name, *rows])
    assert max(map(measure_width, rows)) <= columns
    assert max(map(measure_width, tree.splitlines())) <= max(columns, 20)
    assert measure_width(panel.target_name) <= MAX_TARGET_COLUMNS
    assert "\x1b" not in text and "owned" not in text


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


def test_a_claimed_task_has_a_row_until_its_run_ends() -> None:
    events = make_claims("Write the parser")
    assert draw(make_panel(events))[-1] == "[>] #2 Write the parser · alice"
    ended = draw(make_panel([*events, run_finished("1.1.1")]))
    assert not any("#2" in row for row in ended)


@pytest.mark.parametrize("columns", [10, 20, 80, 200])
def test_a_long_subject_does_not_break_the_row(columns: int) -> None:
    rows = draw(make_panel(make_claims("统计行数\x1b[2J" * 40)), columns)
    assert max(map(measure_width, rows)) <= columns


def test_the_live_tree_shows_all_tasks_that_work_at_the_same_time() -> None:
    events = [
        run_started("1", depth=1, description="#1 Read the paper"),
        run_started("2", depth=1, description="#2 Write the parser"),
        run_started("3", depth=1, description="#3 Test it"),
        turn_started("2", turn=4),
        run_finished("3"),
    ]
    _, stream = draw_live(events)
    assert [row.partition(" · 0 tools")[0] for row in stream.getvalue().splitlines()] == [
        "● #1 Read the paper · thinking…",
        "● #2 Write the parser · turn 4 · thinking…",
    ]


def name_children(*titles: str, columns: int = 26, ended: Iterable[int] = ()) -> list[str]:
    """Return the names of children of one agent with these titles."""
    events: list[AnyEvent] = [run_started("1", agent="main", prompt="Look around")]
    for number, title in enumerate(titles, 1):
        started = run_started(
            f"1.1.{number}", "1", agent="general", description=title, call_id=f"c{number}"
        )
        events.append(started)
    events += [run_finished(f"1.1.{number}") for number in ended]
    tree = RunTree.from_events(events)
    ids = [run for run in tree.runs if run != "1"]
    return [make_child_name(tree, run, columns, UNICODE) for run in ids]


def test_children_of_one_agent_have_different_names() -> None:
    assert name_children("count lines", "count words") == [
        "general (count lines)",
        "general (count words)",
    ]


@pytest.mark.parametrize(
    "titles", [("count", "count"), ("Summarise 5 files in src/a", "Summarise 5 files in src/b")]
)
def test_children_whose_names_would_look_alike_have_their_ids(titles: tuple[str, str]) -> None:
    assert name_children(*titles) == ["general#1.1.1", "general#1.1.2"]


def test_an_ended_child_does_not_change_the_name_of_one_that_works() -> None:
    assert name_children("count", "count", ended=[1])[1] == "general (count)"


@pytest.mark.parametrize("title", ["统计每一个文件的行数和字数", "x" * 80, "evil\x1b[31m text"])
def test_names_fit_and_are_safe_to_print(title: str) -> None:
    (name,) = name_children(title)
    assert measure_width(name) <= 26 and "\x1b" not in name
    assert name.startswith("general (") and name.endswith(")")


def test_a_narrow_name_is_the_agent_with_its_id() -> None:
    assert name_children("count", columns=8) == ["general#1.1.1"]
