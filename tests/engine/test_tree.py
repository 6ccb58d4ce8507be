"""The tree of runs and the messages of one run, folded from events."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom._core.agents import Agent, Brief, Reason, Report
from mudroom._core.budgets import Budget
from mudroom._core.events import (
    AnyEvent,
    Delta,
    ModelCallRetried,
    NoteInjected,
    RunFinished,
    RunStarted,
    SessionOpened,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from mudroom._core.messages import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    user_message,
)
from mudroom._core.tools import ToolResult
from mudroom.projections.run_tree import TAIL_LENGTH, RunState, RunTree
from mudroom.projections.safe_text import describe_call, sanitize, sanitize_line
from mudroom.projections.transcript import build_transcript


def began(
    run: str,
    parent: str = "",
    *,
    at: float = 0.0,
    agent: str = "explore",
    prompt: str = "Look.",
    **more: Any,
) -> RunStarted:
    brief = Brief(
        run_id=run,
        agent=Agent(name=agent),
        prompt=prompt,
        tools=(),
        model="offline",
        budget=Budget(),
        parent=parent,
        depth=run.count("."),
        **more,
    )
    return RunStarted(at=at, run=run, brief=brief)


def asks(
    run: str, *calls: ToolCallBlock, turn: int = 1, at: float = 1.0, text: str = ""
) -> TurnFinished:
    blocks = (TextBlock(text),) if text else ()
    return TurnFinished(
        at=at, run=run, turn=turn, message=AssistantMessage((*blocks, *calls), usage=Usage(100, 10))
    )


def call(id: str, name: str = "read", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(id, name, arguments)


def begins(run: str, call: ToolCallBlock) -> ToolCallStarted:
    return ToolCallStarted(at=2.0, run=run, call=call)


def gives(
    run: str, id: str, text: str = "ok", *, name: str = "read", error: bool = False
) -> ToolCallFinished:
    return ToolCallFinished(at=3.0, run=run, call_id=id, name=name, result=ToolResult(text, error))


def ends(run: str, reason: Reason = Reason.GOAL, *, at: float = 9.0, **more: Any) -> RunFinished:
    return RunFinished(
        at=at, run=run, report=Report(text="done", reason=reason, run_id=run, **more)
    )


def turn(run: str, number: int = 1) -> TurnStarted:
    return TurnStarted(at=0.5, run=run, turn=number)


def tree_of(*events: AnyEvent) -> RunTree:
    tree = RunTree()
    for event in events:
        tree.apply(event)
    return tree


def test_children_hang_under_their_parent_in_the_order_they_began():
    tree = tree_of(
        began("1"), began("1.1.2", "1"), began("1.1.1", "1"), began("1.1.2.1.1", "1.1.2")
    )
    assert [run.run_id for run in tree.roots] == ["1"]
    assert [run.run_id for run in tree.children("1")] == ["1.1.2", "1.1.1"]
    assert [run.run_id for run in tree.walk()] == ["1", "1.1.2", "1.1.2.1.1", "1.1.1"]
    assert [run.run_id for run in tree.walk("1.1.2")] == ["1.1.2", "1.1.2.1.1"]


def test_a_run_whose_parent_is_unknown_is_a_root_and_events_of_unknown_runs_are_passed_over():
    tree = tree_of(
        SessionOpened(at=0, session="s", cwd="/", version="0"),
        began("1.1.1", "1"),
        turn("7"),
        gives("7", "a"),
    )
    assert [run.run_id for run in tree.roots] == ["1.1.1"]
    assert list(tree.runs) == ["1.1.1"]


def test_a_run_shows_turn_tools_and_last_action():
    run = tree_of(
        began("1", description="Find it", prompt="Find the thing"),
        turn("1", 2),
        begins("1", call("a", "read", file_path="src/x.py", limit=3)),
        gives("1", "a", error=True),
        begins("1", call("b", "grep", pattern="def  main\n")),
    ).runs["1"]
    assert (run.turn, run.tool_call_count, run.failed_calls, run.last_action) == (
        2,
        1,
        1,
        "grep def main",
    )
    assert run.open_calls == {"b": "grep"}
    assert (run.description, run.prompt, run.agent, run.model) == (
        "Find it",
        "Find the thing",
        "explore",
        "offline",
    )


def test_tokens_are_counted_for_the_run_and_for_every_ancestor():
    tree = tree_of(
        began("1"),
        began("1.1.1", "1"),
        began("1.1.1.1.1", "1.1.1"),
        asks("1"),
        asks("1.1.1"),
        asks("1.1.1.1.1"),
    )
    assert [tree.runs[run].usage.total_tokens for run in ("1", "1.1.1", "1.1.1.1.1")] == [
        110,
        110,
        110,
    ]
    assert [tree.runs[run].total_usage.total_tokens for run in ("1", "1.1.1", "1.1.1.1.1")] == [
        330,
        220,
        110,
    ]


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
def test_the_state_of_a_finished_run_follows_its_reason(reason: Reason, state: RunState):
    run = tree_of(
        began("1", at=2.0), ends("1", reason, at=7.0, error="no\x1b[31m such\nmodel")
    ).runs["1"]
    assert run.state is state
    assert run.seconds(now=100.0) == 5.0
    assert run.error == "no such model"


def test_a_run_that_only_waits_for_children_is_waiting():
    waiting = tree_of(began("1"), begins("1", call("a", "task")), begins("1", call("b", "Agent")))
    assert waiting.runs["1"].state is RunState.WAITING
    waiting.apply(begins("1", call("c", "read")))
    assert waiting.runs["1"].state is RunState.RUNNING
    assert tree_of(began("1")).runs["1"].state is RunState.RUNNING


def test_streamed_words_are_kept_short_and_are_void_after_a_retry():
    tree = tree_of(
        began("1"),
        turn("1"),
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


def test_a_resumed_run_goes_on_in_its_place():
    tree = tree_of(
        began("1"),
        began("1.1.1", "1"),
        begins("1.1.1", call("a")),
        ends("1.1.1", Reason.LOST),
        began("1.1.1", "1", at=20.0),
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
def test_clean_text_is_shown_and_never_obeyed(text: str, shown: str):
    assert sanitize(text) == shown


def test_one_line_is_one_line_and_no_longer_than_asked():
    assert sanitize_line("  a\n\tb\x1b[1m   c ") == "a b c"
    assert sanitize_line("x" * 1000, 10) == "x" * 10


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (call("1", "bash", command="ls -la", description="List files"), "bash List files"),
        (call("1", "read", limit=3, file_path="a.py"), "read a.py"),
        (call("1", "odd", number=3, word="hm"), "odd hm"),
        (call("1", "todo", items=[1]), "todo"),
        (call("1", "read", file_path=["a"], other="b"), "read b"),
        (call("1", "ba\x1b[2Jsh", command="rm\n\u202e-rf"), "bash rm -rf"),
    ],
)
def test_a_call_is_described_by_its_most_telling_argument(made: ToolCallBlock, words: str):
    assert describe_call(made) == words


def history() -> tuple[UserMessage, AssistantMessage]:
    return user_message("before"), AssistantMessage((TextBlock("said"),))


def test_transcript_begins_with_history_then_the_prompt():
    events: list[StoredEvent] = [began("1", prompt="now", history=history())]
    assert build_transcript(events, "1") == (*history(), user_message("now"))
    assert build_transcript(events, "2") == ()


def test_transcript_puts_results_in_the_order_of_the_calls_and_words_after_them():
    first, last = asks("1", call("a"), call("b")), asks("1", turn=2, text="done")
    events: list[StoredEvent] = [
        began("1", prompt="go"),
        turn("1"),
        first,
        gives("1", "b", "two", name="grep"),
        gives("1.1.1", "a", "of another run"),
        NoteInjected(at=2, run="1", text="mind the list"),
        gives("1", "a", "one", error=True),
        NoteInjected(at=2, run="1", text="hurry"),
        turn("1", 2),
        last,
        ends("1"),
    ]
    assert build_transcript(events, "1") == (
        user_message("go"),
        first.message,
        UserMessage(
            (
                ToolResultBlock("a", "read", "one", True),
                ToolResultBlock("b", "grep", "two"),
                TextBlock("mind the list"),
                TextBlock("hurry"),
            )
        ),
        last.message,
    )
    assert build_transcript(events[:-3], "1")[-1] == build_transcript(events, "1")[2]


def test_transcript_ends_with_the_answer_while_a_call_has_no_result():
    answer = asks("1", call("a"), call("b"))
    events: list[StoredEvent] = [began("1"), turn("1"), answer, gives("1", "a")]
    assert build_transcript(events, "1") == (user_message("Look."), answer.message)
    later: list[StoredEvent] = [
        *events,
        began("1"),
        gives("1", "b", "late"),
        gives("1", "a", "twice"),
        turn("1", 2),
    ]
    assert build_transcript(later, "1")[2:] == (
        UserMessage((ToolResultBlock("a", "read", "ok"), ToolResultBlock("b", "read", "late"))),
    )


def test_transcript_joins_early_words_to_the_prompt_and_nudges_follow_an_answer_without_calls():
    answer = asks("1", text="hm")
    events: list[StoredEvent] = [
        began("1", prompt="go"),
        NoteInjected(at=0, run="1", text="today is Monday"),
        turn("1"),
        ModelCallRetried(at=1, run="1", attempt=1, delay=1.0),
        TurnFailed(at=1, run="1", error="cut"),
        turn("1", 2),
        answer,
        NoteInjected(at=2, run="1", text="finish it"),
    ]
    assert build_transcript(events, "1") == (
        UserMessage((TextBlock("go"), TextBlock("today is Monday"))),
        answer.message,
        user_message("finish it"),
    )


def test_transcript_keeps_apart_call_ids_that_a_provider_uses_again():
    events: list[StoredEvent] = [
        began("1"),
        turn("1"),
        asks("1", call("x")),
        gives("1", "x", "first"),
        turn("1", 2),
    ]
    events += [asks("1", call("x"), turn=2), gives("1", "x", "second")]
    blocks = [
        message.content[0]
        for message in build_transcript(events, "1")
        if isinstance(message, UserMessage)
    ]
    assert blocks == [
        TextBlock("Look."),
        ToolResultBlock("x", "read", "first"),
        ToolResultBlock("x", "read", "second"),
    ]
