"""Messages of a run, rebuilt from its events."""

from __future__ import annotations

from mudroom import AssistantMessage, TextBlock, ToolResultBlock, UserMessage
from mudroom._core.messages import user_message
from mudroom._projections.transcript import build_transcript
from mudroom.events import ModelCallRetried, NoteInjected, StoredEvent, TurnFailed
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_finished,
    turn_finished,
    turn_started,
)


def make_history() -> tuple[UserMessage, AssistantMessage]:
    return user_message("before"), AssistantMessage((TextBlock("said"),))


def test_transcript_starts_with_history_then_prompt() -> None:
    events: list[StoredEvent] = [run_started("1", prompt="now", history=make_history())]
    assert build_transcript(events, "1") == (*make_history(), user_message("now"))
    assert build_transcript(events, "2") == ()


def test_transcript_has_results_in_call_order_then_notes() -> None:
    first, last = (
        turn_finished("1", tool_call("a"), tool_call("b")),
        turn_finished("1", turn=2, text="done"),
    )
    events: list[StoredEvent] = [
        run_started("1", prompt="go"),
        turn_started("1"),
        first,
        tool_call_finished("1", "b", "two", name="grep"),
        tool_call_finished("1.1.1", "a", "of another run"),
        NoteInjected(at=2, run="1", text="mind the list"),
        tool_call_finished("1", "a", "one", error=True),
        NoteInjected(at=2, run="1", text="hurry"),
        turn_started("1", 2),
        last,
        run_finished("1"),
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


def test_transcript_ends_with_answer_while_a_call_has_no_result() -> None:
    answer = turn_finished("1", tool_call("a"), tool_call("b"))
    events: list[StoredEvent] = [
        run_started("1"),
        turn_started("1"),
        answer,
        tool_call_finished("1", "a"),
    ]
    assert build_transcript(events, "1") == (user_message("Look."), answer.message)
    later: list[StoredEvent] = [
        *events,
        run_started("1"),
        tool_call_finished("1", "b", "late"),
        tool_call_finished("1", "a", "twice"),
        turn_started("1", 2),
    ]
    assert build_transcript(later, "1")[2:] == (
        UserMessage((ToolResultBlock("a", "read", "ok"), ToolResultBlock("b", "read", "late"))),
    )


def test_transcript_joins_early_notes_to_the_prompt_and_later_ones_follow_the_answer() -> None:
    answer = turn_finished("1", text="hm")
    events: list[StoredEvent] = [
        run_started("1", prompt="go"),
        NoteInjected(at=0, run="1", text="today is Monday"),
        turn_started("1"),
        ModelCallRetried(at=1, run="1", attempt=1, delay=1.0),
        TurnFailed(at=1, run="1", error="cut"),
        turn_started("1", 2),
        answer,
        NoteInjected(at=2, run="1", text="finish it"),
    ]
    assert build_transcript(events, "1") == (
        UserMessage((TextBlock("go"), TextBlock("today is Monday"))),
        answer.message,
        user_message("finish it"),
    )


def test_transcript_separates_reused_call_ids() -> None:
    events: list[StoredEvent] = [
        run_started("1"),
        turn_started("1"),
        turn_finished("1", tool_call("x")),
        tool_call_finished("1", "x", "first"),
        turn_started("1", 2),
    ]
    events += [turn_finished("1", tool_call("x"), turn=2), tool_call_finished("1", "x", "second")]
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
