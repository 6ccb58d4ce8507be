"""The messages rebuilt from the record are those that the model was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import AnyEvent, Budget, Ledger, Session, TextBlock, ToolResultBlock, UserMessage
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.messages import AssistantMessage, Message, user_message
from mudroom._projections.run_tree import RunTree
from mudroom._projections.transcript import build_transcript
from mudroom.events import (
    Delta,
    ModelCallRetried,
    NoteInjected,
    RunStarted,
    StoredEvent,
    TurnFailed,
)
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_finished,
    turn_finished,
    turn_started,
)


def script(request: Request) -> Answer:
    """A parent that asks for two children at once and fails a call.

    Children that read, one of them without end.
    """
    if "the house" in request.prompt:
        if request.turn == 0:
            return [
                "I delegate.",
                call("task", prompt="count the lines", description="Count"),
                call("task", prompt="read for ever", max_turns=2),
                call("read", path="notes.txt"),
            ]
        return (
            "and again"
            if request.turn > 2
            else [call("nothing", x=1)]
            if request.turn == 1
            else "The house is clean."
        )
    if request.prompt == "count the lines":
        return (
            [call("read", file_path="notes.txt"), call("bash", command="wc -l notes.txt")]
            if request.turn == 0
            else "Three lines."
        )
    return (
        [call("read", file_path="notes.txt", offset=request.turn + 1)]
        if request.tools
        else "I read it over and over."
    )


@pytest.fixture
async def recorded(tmp_path: Path) -> tuple[list[StoredEvent], ScriptedModel]:
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    model, events = ScriptedModel(script), list[AnyEvent]()
    async with Session(
        model=model,
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        journal="memory",
        budget=Budget(turns=9),
    ) as session:
        session.watch(events.append)
        await session.run("Look at the house.")
        await session.run("Look again at the house.")
    return [event for event in events if not isinstance(event, Delta)], model


def list_conversation(events: list[StoredEvent], run: RunStarted) -> tuple[Message, ...]:
    """A run's messages, after those of the run it continues."""
    before = next(
        (e for e in events if isinstance(e, RunStarted) and e.run == run.brief.continues), None
    )
    return (
        *(list_conversation(events, before) if before else ()),
        *build_transcript(events, run.run),
    )


async def test_transcript_equals_the_requests_and_the_last_answer(
    recorded: tuple[list[StoredEvent], ScriptedModel],
) -> None:
    events, model = recorded
    rebuilt = [
        list_conversation(events, event) for event in events if isinstance(event, RunStarted)
    ]
    assert len(rebuilt) == 4
    sent = [request.messages for request in model.requests]
    for messages in rebuilt:
        assert isinstance(messages[-1], AssistantMessage)
        assert messages[:-1] in sent
    strays = [
        request
        for request in sent
        if not any(messages[: len(request)] == request for messages in rebuilt)
    ]
    assert strays == []


async def test_tree_and_ledger_agree_with_the_reports(
    recorded: tuple[list[StoredEvent], ScriptedModel],
) -> None:
    events, _ = recorded
    tree = RunTree()
    for event in events:
        tree.apply(event)
    for run in tree.walk():
        assert run.report
        assert run.total_usage == run.report.usage
        assert run.tool_call_count == sum(run.report.calls.values())
        assert run.failed_calls == run.report.failed
        assert run.turn == run.report.turns
    assert [len(tree.children(root.run_id)) for root in tree.roots] == [2, 0]
    booked = Ledger.from_events(events)
    assert booked.children == 2
    assert booked.child_tokens == sum(run.usage.total_tokens for run in tree.children("1"))
    assert booked.read_lines > 6
    assert booked.returned_lines > 2


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
