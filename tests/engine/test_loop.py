"""The one loop: ask, act, append, until nothing more is asked for; and what is said when things go wrong on the way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from mudroom import AssistantMessage, Reason, TextBlock, Usage
from mudroom._core.events import (
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from mudroom._core.messages import StopReason, ThinkingBlock, ToolResultBlock
from mudroom.errors import ModelRefused, ModelUnavailable
from mudroom.models.scripted import call
from mudroom.projections.ledger import compute_ledger


async def test_it_asks_acts_and_appends_until_no_call_is_left(stage: Any) -> None:
    report = await stage.run(
        [
            ["I look.", call("read", path="notes.txt")],
            [call("bash", command="echo mud")],
            "Three lines.",
        ]
    )
    assert (report.text, report.reason, report.ok, report.turns) == (
        "Three lines.",
        Reason.GOAL,
        True,
        3,
    )
    assert (
        report.calls == {"read": 1, "bash": 1}
        and report.files_read == ("notes.txt",)
        and report.failed == 0
    )
    last = stage.model.requests[-1].messages
    assert [type(message).__name__ for message in last] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]
    assert "two" in last[2].content[0].text and "mud" in last[4].content[0].text


async def test_each_request_is_the_one_before_and_something_more(stage: Any) -> None:
    await stage.run(
        [
            [call("read", path="notes.txt")],
            [ThinkingBlock("hm", "sealed"), call("glob", pattern="*")],
            "end",
        ]
    )
    requests = stage.model.requests
    for earlier, later in pairwise(requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert (later.system, later.tools) == (earlier.system, earlier.tools)


async def test_intent_act_and_result_are_recorded_in_that_order_inside_their_turn(
    stage: Any,
) -> None:
    await stage.run([[call("read", path="notes.txt")], "end"])
    kinds = [type(event) for event in stage.events if isinstance(event, StoredEvent) and event.run]
    assert kinds == [
        RunStarted,
        TurnStarted,
        TurnFinished,
        ToolCallStarted,
        ToolCallFinished,
        TurnStarted,
        TurnFinished,
        RunFinished,
    ]


async def test_a_model_that_says_nothing_at_all_ends_the_run_without_text(stage: Any) -> None:
    report = await stage.run([""])
    assert (report.text, report.reason) == ("", Reason.GOAL)


async def test_the_last_words_are_the_report_not_those_before_them(stage: Any) -> None:
    report = await stage.run([["first I look", call("read", path="notes.txt")], "and this is it"])
    assert report.text == "and this is it"


@pytest.mark.parametrize("error", [ModelRefused("bad key"), ModelUnavailable("overloaded")])
async def test_a_model_that_fails_for_good_is_an_honest_error_with_what_was_said_before(
    stage: Any, error: Exception
) -> None:
    report = await stage.run([["so far so good", call("read", path="notes.txt")], error])
    assert (report.reason, report.text, report.recovered) == (Reason.ERROR, "so far so good", False)
    assert str(error) in report.error


@pytest.mark.parametrize(
    ("stop", "said"), [(StopReason.LENGTH, "output limit"), (StopReason.REFUSAL, "refused")]
)
async def test_an_answer_that_was_broken_off_is_no_goal(
    stage: Any, stop: StopReason, said: str
) -> None:
    report = await stage.run([AssistantMessage((TextBlock("half a sen"),), stop)])
    assert report.reason is Reason.ERROR and said in report.error and report.text == "half a sen"


async def test_ids_of_calls_are_made_distinct_whatever_a_provider_sends(stage: Any) -> None:
    same = [call("read", path="notes.txt"), call("glob", pattern="*")]
    twice = [
        AssistantMessage(
            tuple(block.__class__("x", block.name, block.arguments) for block in same),
            StopReason.CALLS,
        )
    ] * 2
    await stage.run([*twice, "end"])
    results = [
        block
        for message in stage.model.requests[-1].messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    assert len({result.call_id for result in results}) == len(results) == 4


async def test_prompt_id_follows_every_event_of_every_run(stage: Any) -> None:
    await stage.run(
        {
            "PARENT": [[call("task", prompt="CHILD")], "end"],
            "CHILD": [[call("read", path="notes.txt")], "done"],
        }
    )
    who = {"1": "main", "1.1.1": "general"}
    of_runs = [event for event in stage.events if event.run]
    assert {event.run for event in of_runs} == set(who)
    assert all(
        event.prompt_id == f"{stage.session.id}#{who[event.run]}#{event.turn}" for event in of_runs
    )


async def test_tokens_of_children_are_in_the_parents_report_and_in_the_ledger(stage: Any) -> None:
    def said(text: str, read: int, wrote: int) -> AssistantMessage:
        return AssistantMessage((TextBlock(text),), usage=Usage(read, wrote))

    report = await stage.run(
        {
            "PARENT": [
                [call("task", prompt="CHILD"), call("task", prompt="CHILD")],
                said("end", 500, 5),
            ],
            "CHILD": [said("done", 100, 7)],
        }
    )
    first = stage.model.requests[0]
    assert (
        report.usage.input_tokens >= 500 + 2 * 100
        and report.usage.output_tokens >= 5 + 2 * 7
        and first.turn == 0
    )
    assert compute_ledger(stage.events).child_tokens == 2 * 107
