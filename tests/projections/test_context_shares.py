"""Shares of a context, as `/context` shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import AssistantMessage, Reason, Session, TextBlock, ToolCallBlock, Usage
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._projections.context_size import ContextShares
from mudroom._projections.transcript import ConversationContext
from mudroom._session.config import Settings
from mudroom._session.conversation_state import ConversationState
from mudroom.events import ConversationRewound, StoredEvent
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call_events,
    tool_call_started,
    turn_events,
)

from ..shown_session import show


async def test_context_lists_the_share_of_each_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("x" * 400_000)
    usage = Usage(8_000, 0)
    model = ScriptedModel(
        [
            AssistantMessage((ToolCallBlock("r", "read", {"file_path": "notes.txt"}),)),
            AssistantMessage((ToolCallBlock("t", "task", {"prompt": "look"}),)),
            AssistantMessage((TextBlock("the report " * 400),)),
            AssistantMessage((TextBlock("the answer"),), usage=usage),
        ]
    )
    session = Session(model=model, cwd=str(tmp_path), home=str(tmp_path))
    settings = Settings(home=str(tmp_path))
    async with show(session, settings) as conversation:
        await conversation.handle_line("/context")
        assert "%" not in capsys.readouterr().out, "nothing was sent yet"
        await conversation.handle_line("look at everything")
        capsys.readouterr()
        await conversation.handle_line("/context")
    rows = [row.strip() for row in capsys.readouterr().out.splitlines() if "%, ~" in row]
    shares = {name.strip(): rest for name, _, rest in (row.partition("  ") for row in rows)}
    percents = [int(rest.partition("%")[0].strip(" <")) for rest in shares.values()]
    assert percents == sorted(percents, reverse=True) and 96 <= sum(percents) <= 104
    parts = {"instructions", "tool descriptions", "your messages", "answers", "tool calls"}
    assert shares.keys() == parts | {"tool results", "child reports"}
    assert shares["answers"].strip().startswith("<1%, ~")


def test_a_call_of_a_child_with_the_id_of_a_call_of_its_parent_is_another_call() -> None:
    shares = ContextShares()
    read, task = ToolCallBlock("a", "read", {}), ToolCallBlock("b", "task", {})
    for event in [
        run_started("1"),
        *turn_events("1", read, task),
        *tool_call_events("1", read, text="x" * 4_000),
        *tool_call_events("1", task, text="y" * 400),
        tool_call_started("1.1.1", ToolCallBlock("a", "task", {})),
        tool_call_started("1.1.1", ToolCallBlock("b", "read", {})),
    ]:
        shares.apply(event)
    sizes = dict(shares.measure())
    assert sizes["tool results"] > 900 and sizes["child reports"] < 200, "a prompt that works"


def test_a_rewind_removes_messages_also_for_a_session_that_is_resumed() -> None:
    shares = ContextShares()
    resumed = ContextShares()
    events: list[StoredEvent] = []
    for run, prompt in (("1", "x" * 400), ("2", "x" * 4_000)):
        continues = "1" if run == "2" else ""
        events += [run_started(run, prompt=prompt, continues=continues), run_finished(run)]
    for event in events:
        shares.apply(event)
        resumed.apply(event)
    assert dict(shares.measure())["your messages"] > 1_000
    shares.rewind("2")
    resumed.apply(ConversationRewound(at=1, latest_run="1"))
    assert dict(shares.measure()) == dict(resumed.measure())
    assert 50 < dict(shares.measure())["your messages"] < 200


def test_the_messages_are_those_of_the_next_prompt_after_failed_ones() -> None:
    """A compaction without a summary and a refused prompt are left out, as in the session."""
    first = [
        run_started("1", prompt="Say hello."),
        *turn_events("1", TextBlock("Hello.")),
        run_finished("1"),
    ]
    failed = run_finished("2", reason=Reason.ERROR)
    for start in (
        run_started("2", prompt="Summarise.", continues="1", is_compaction=True),
        run_started("2", prompt="Refused.", continues="1"),
    ):
        shown, state = ConversationContext(), ConversationState()
        for event in (*first, start, failed):
            shown.apply(event)
        state.load([*first, start, failed])
        assert shown.list_messages() == tuple(state.messages) != ()
