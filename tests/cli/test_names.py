"""Names of children on the screens: one label per run, at every width."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from tests.cli.test_panel import make_panel
from tests.cli.test_resume_reads import SESSION
from tests.transcripts import render_transcript

from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._cli.actions.export import render_session_markdown
from mudroom._cli.actions.prompts import expand_mentions, split_message
from mudroom._cli.actions.show_session import print_session
from mudroom._cli.interactive.panel import MAX_TARGET_COLUMNS
from mudroom._cli.interactive.questions.question_lines import format_call, format_title
from mudroom._cli.output.plain_progress import PlainProgress
from mudroom._cli.output.text import measure_width
from mudroom._cli.output.transcript_lines import TextStyle, render_tree
from mudroom._core.events import StoredEvent
from mudroom._core.ports import ApprovalRequest
from mudroom._projections.run_tree import RunTree
from mudroom.errors import UnknownName
from mudroom.testing.event_builders import run_finished, run_started, turn_started

CHINESE = "小红"
LONG = "a-name-that-has-forty-characters-in-it-x"


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


@pytest.mark.parametrize("name", [CHINESE, LONG, "\x1b]0;owned\x07al\nice"])
@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_no_name_breaks_a_screen(name: str, columns: int) -> None:
    panel = make_panel(make_team(name))
    rows = ["".join(text for text, _ in line) for line in panel.format_lines(columns, 30)]
    panel.target_run_id = "1.1.1~2"
    tree, _, _ = render_tree(make_team(name), TextStyle(columns=columns)).rpartition("\n\n")
    text = f"{tree}\n{panel.target_name}"
    assert max(map(measure_width, [*rows, *tree.splitlines()])) <= columns
    assert measure_width(panel.target_name) <= MAX_TARGET_COLUMNS
    assert "\x1b" not in text and "owned" not in text
