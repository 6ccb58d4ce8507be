"""The run tree, and text for screens: reasons, the work of children, runs below a run."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason, ToolCallBlock
from mudroom._cli.output.tree_lines import describe_outcome
from mudroom._core.runs import Report, Work
from mudroom._engine.recorded_conversations import PastEvents
from mudroom._projections.reason_words import REASON_WORDS, describe_reason
from mudroom._projections.run_tree import TAIL_LENGTH, RunTree
from mudroom._projections.run_view import RunState, RunView, describe_merge
from mudroom._projections.safe_text import describe_call, sanitize, sanitize_line
from mudroom._viewer.export import load_page_files
from mudroom.events import (
    CheckFinished,
    CheckStarted,
    Delta,
    ModelCallRetried,
    RunFinished,
    RunWaiting,
    SessionOpened,
    TurnFailed,
    WorkMerged,
)
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_finished,
    tool_call_started,
    turn_events,
    turn_started,
)


def build_tree(*events: AnyEvent) -> RunTree:
    tree = RunTree()
    for event in events:
        tree.apply(event)
    return tree


def test_children_are_below_their_parent_in_start_order() -> None:
    tree = build_tree(
        run_started("1"),
        run_started("1.1.2", "1"),
        run_started("1.1.1", "1"),
        run_started("1.1.2.1.1", "1.1.2"),
    )
    assert [run.run_id for run in tree.roots] == ["1"]
    assert [run.run_id for run in tree.children("1")] == ["1.1.2", "1.1.1"]
    assert [run.run_id for run in tree.walk()] == ["1", "1.1.2", "1.1.2.1.1", "1.1.1"]
    assert [run.run_id for run in tree.walk("1.1.2")] == ["1.1.2", "1.1.2.1.1"]


def test_a_run_that_waits_for_background_children_works_again_in_its_next_turn() -> None:
    events = [run_started("1"), *turn_events("1"), RunWaiting(at=2, run="1", runs=("1.1.1",))]
    assert build_tree(*events).runs["1"].state is RunState.WAITING
    tree = build_tree(*events, turn_started("1", 2))
    assert tree.runs["1"].state is RunState.RUNNING


def test_run_with_unknown_parent_is_a_root_and_events_of_unknown_runs_are_ignored() -> None:
    tree = build_tree(
        SessionOpened(at=0, session="s", cwd="/", version="0"),
        run_started("1.1.1", "1"),
        turn_started("7"),
        tool_call_finished("7", "a"),
    )
    assert [run.run_id for run in tree.roots] == ["1.1.1"]
    assert list(tree.runs) == ["1.1.1"]


def test_view_has_turn_tool_calls_and_last_action() -> None:
    run = build_tree(
        run_started("1", description="Find it", prompt="Find the thing"),
        turn_started("1", 2),
        tool_call_started("1", tool_call("a", "read", file_path="src/x.py", limit=3)),
        tool_call_finished("1", "a", error=True),
        tool_call_started("1", tool_call("b", "grep", pattern="def  main\n")),
    ).runs["1"]
    assert (run.turn, run.tool_call_count, run.failed_calls, run.last_action) == (
        2,
        1,
        1,
        "grep def main",
    )
    assert run.open_calls == {"b": ""}
    assert (run.description, run.prompt, run.agent, run.model) == (
        "Find it",
        "Find the thing",
        "explore",
        "offline",
    )


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (Reason.GOAL, RunState.DONE),
        (Reason.ERROR, RunState.FAILED),
        (Reason.LOST, RunState.FAILED),
        (Reason.MAX_TURNS, RunState.STOPPED),
        (Reason.TIMEOUT, RunState.STOPPED),
        (Reason.CANCELLED, RunState.STOPPED),
        (Reason.BUDGET, RunState.STOPPED),
        (Reason.LOOP, RunState.STOPPED),
    ],
)
def test_state_of_a_finished_run_follows_its_reason(reason: Reason, state: RunState) -> None:
    run = build_tree(
        run_started("1", at=2.0), run_finished("1", reason, at=7.0, error="no\x1b[31m such\nmodel")
    ).runs["1"]
    assert run.state is state
    assert run.count_seconds(now=100.0) == 5.0
    assert run.error == "no such model"


def test_run_with_only_open_task_calls_is_waiting() -> None:
    waiting = build_tree(
        run_started("1"),
        tool_call_started("1", tool_call("a", "task")),
        tool_call_started("1", tool_call("b", "Agent")),
    )
    assert waiting.runs["1"].state is RunState.WAITING
    waiting.apply(tool_call_started("1", tool_call("c", "read")))
    assert waiting.runs["1"].state is RunState.RUNNING
    assert build_tree(run_started("1")).runs["1"].state is RunState.RUNNING


def test_streamed_text_is_limited_and_discarded_on_retry() -> None:
    tree = build_tree(
        run_started("1"),
        turn_started("1"),
        Delta(at=1, run="1", kind="text", text="x" * 1000),
        Delta(at=1, run="1", kind="call", text="y"),
    )
    assert tree.runs["1"].streamed_tail == "x" * TAIL_LENGTH
    tree.apply(ModelCallRetried(at=4, run="1", attempt=1, delay=2.0, status=429))
    assert tree.runs["1"].streamed_tail == ""
    assert tree.runs["1"].pending_retry
    tree.apply(Delta(at=6, run="1", kind="text", text="again"))
    assert (
        tree.runs["1"].streamed_tail,
        tree.runs["1"].pending_retry,
        tree.runs["1"].last_event_at,
    ) == (
        "again",
        None,
        6,
    )
    tree.apply(TurnFailed(at=7, run="1", error="gone"))
    assert (tree.runs["1"].streamed_tail, tree.runs["1"].error) == ("", "gone")


def test_resumed_run_keeps_its_place() -> None:
    tree = build_tree(
        run_started("1"),
        run_started("1.1.1", "1"),
        tool_call_started("1.1.1", tool_call("a")),
        run_finished("1.1.1", Reason.LOST),
        run_started("1.1.1", "1", at=20.0),
    )
    run = tree.runs["1.1.1"]
    assert (run.state, run.open_calls, len(tree.children("1"))) == (RunState.RUNNING, {}, 1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 中文, é", "plain, 中文, é"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("a\x1bPq#1\x1b\\b", "ab"),
        ("\x9b31mred", "31mred"),
        ("a\x1bcb\x1b(0c", "abc"),
        ("bell\a\b\x7f\x00", "bell"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("tab\tline\n", "tab\tline\n"),
        ("a\u202egnp.exe\u2066\u200b\ufeff", "agnp.exe"),
        ("lone \ud800!", "lone \ufffd!"),
    ],
)
def test_sanitize_removes_control_sequences(text: str, shown: str) -> None:
    assert sanitize(text) == shown


def test_sanitize_line_returns_one_limited_line() -> None:
    assert sanitize_line("  a\n\tb\x1b[1m   c ") == "a b c"
    assert sanitize_line("x" * 1000, 10) == "x" * 10


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (tool_call("1", "bash", command="ls -la", description="List files"), "bash ls -la"),
        (tool_call("1", "read", limit=3, file_path="a.py"), "read a.py"),
        (tool_call("1", "odd", number=3, word="hm"), "odd hm"),
        (tool_call("1", "todo", items=[1]), "todo"),
        (tool_call("1", "read", file_path=["a"], other="b"), "read b"),
        (tool_call("1", "ba\x1b[2Jsh", command="rm\n\u202e-rf"), "bash rm -rf"),
    ],
)
def test_call_is_described_by_the_title_argument_of_its_tool(
    made: ToolCallBlock, words: str
) -> None:
    started = tool_call_started("1", made)
    assert describe_call(made, started.title) == words


def test_call_of_an_older_record_is_described_by_its_first_text() -> None:
    call = tool_call("1", "bash", timeout=3, command="ls -la", description="List files")
    assert describe_call(call) == "bash ls -la"


WORK = Work("base", "tree", ("a.py", "b.py"))
NO_CHANGES = Work("base", "base")


def finish_child(
    work: Work | None, merge: WorkMerged | None = None, reason: Reason = Reason.GOAL
) -> RunView:
    report = Report(
        text="Done.", reason=reason, run_id="1.1.1", work=work, outputs=dict[str, object]()
    )
    finished = RunFinished(at=2, run="1.1.1", report=report)
    events = [run_started("1"), run_started("1.1.1", "1"), finished, *filter(None, [merge])]
    return RunTree.from_events(events).runs["1.1.1"]


def make_merge(
    state: str, files: tuple[str, ...] = (), conflicts: tuple[str, ...] = ()
) -> WorkMerged:
    kinds = tuple((path, "both-modified") for path in conflicts)
    return WorkMerged(at=3, run="1", child="1.1.1", state=state, files=files, conflicts=kinds)


@pytest.mark.parametrize(
    ("work", "merge", "words"),
    [
        (None, None, ""),
        (WORK, None, ""),
        (WORK, make_merge("merged", ("a.py", "b.py")), "merged 2 files"),
        (NO_CHANGES, make_merge("merged"), "no changes"),
        (WORK, make_merge("conflict", conflicts=("a.py",)), "conflict in 1 file"),
        (WORK, make_merge("refused"), "2 files not merged"),
        (WORK, make_merge("red"), "check failed"),
    ],
)
def test_the_state_of_the_work_of_a_child_is_told_in_words(
    work: Work | None, merge: WorkMerged | None, words: str
) -> None:
    assert describe_merge(finish_child(work, merge)) == words


def test_work_is_shown_as_checking_until_the_check_or_the_merge_ends() -> None:
    tree = RunTree()
    tree.runs["1.1.1"] = finish_child(WORK)
    tree.runs["1"] = RunTree.from_events([run_started("1")]).runs["1"]
    check = CheckStarted(at=3, run="1", command="make", tree="4b1f", children=("1.1.1", "1.1.2"))
    ended = CheckFinished(at=4, run="1", command="make", tree="4b1f", children=check.children)
    for end in (ended, make_merge("merged", ("a.py",))):
        tree.apply(check)
        assert describe_merge(tree.runs["1.1.1"]) == "checking"
        tree.apply(end)
        assert describe_merge(tree.runs["1.1.1"]) != "checking"


def test_a_run_that_works_has_no_state_of_its_work() -> None:
    tree = RunTree.from_events([run_started("1"), run_started("1.1.1", "1")])
    assert describe_merge(tree.runs["1.1.1"]) == ""


def test_the_outcome_of_a_child_names_what_became_of_its_work() -> None:
    assert describe_outcome(finish_child(WORK, make_merge("merged", ("a.py",)))) == (
        "Done, merged 1 file"
    )
    stopped = finish_child(WORK, make_merge("conflict", conflicts=("a.py",)), Reason.MAX_TURNS)
    assert describe_outcome(stopped) == "Turn limit, conflict in 1 file"


RUNS = ("1", "1.1.1", "1.1.1.2.1", "1.1.1~2", "1.1.10", "1.0.alice~1", "10", "10.1.1")


def test_the_runs_below_a_run_are_those_of_its_children_and_of_their_children() -> None:
    past = PastEvents({run: [run_started(run)] for run in RUNS})
    assert list(past.walk_below("1")) == [
        "1.1.1",
        "1.1.1.2.1",
        "1.1.1~2",
        "1.1.10",
        "1.0.alice~1",
    ]
    assert list(past.walk_below("1.1.1")) == ["1.1.1.2.1"]
    assert list(past.walk_below("10")) == ["10.1.1"]
    assert list(past.walk_below("1.1.10")) == []
    del past["1.1.1"]
    past.pop("10.1.1")
    assert "1.1.1" not in past and len(past) == len(RUNS) - 2
    assert list(past.walk_below("1")) == ["1.1.1~2", "1.1.10", "1.0.alice~1"]
    assert list(past.walk_below("10")) == []
    past.clear()
    assert not past and list(past.walk_below("1")) == []


def test_many_runs_are_removed_at_once() -> None:
    """The sequence of single removals took 10 s for so many, on the event loop."""
    past = PastEvents({f"1.{number}.1": [] for number in range(100_000)})
    start = time.thread_time()
    past.clear()
    assert time.thread_time() - start < 1


PAGE = Path(__file__).parents[2] / "docs" / "tasks-and-reports.md"


def test_each_reason_has_words_and_an_unknown_one_its_name():
    assert set(REASON_WORDS) == set(Reason)
    assert describe_reason("MAX_TURNS") == "turn limit"
    assert describe_reason("OF_A_NEWER_VERSION") == "OF_A_NEWER_VERSION"


def test_the_viewer_has_the_words_of_the_terminal():
    script = load_page_files()["reason_words.js"].decode()
    table = json.loads(script.removeprefix("const REASON_WORDS = ").removesuffix(";\n"))
    assert table == {reason.value: list(words) for reason, words in REASON_WORDS.items()}


def test_the_documentation_lists_the_words():
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([a-z ]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == [(reason.value, words.outcome) for reason, words in REASON_WORDS.items()]
