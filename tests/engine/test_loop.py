"""The loop: model call, tool calls, results, until an answer has no tool call; its failures."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.engine.conftest import Stage, block_texts

from mudroom import AssistantMessage, Reason, TextBlock, Usage
from mudroom._adapters.models.scripted import call
from mudroom._core.events import (
    NoteInjected,
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from mudroom._core.messages import StopReason, ThinkingBlock
from mudroom._engine.loop import EMPTY_ANSWER, STOPPED_ANSWER
from mudroom._projections.ledger import Ledger
from mudroom.errors import ModelRefused, ModelUnavailable


async def test_the_loop_runs_until_an_answer_has_no_tool_call(stage: Stage) -> None:
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
    assert "two" in block_texts(last[2])[0] and "mud" in block_texts(last[4])[0]


async def test_each_request_extends_the_one_before(stage: Stage) -> None:
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
    stage: Stage,
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


@pytest.mark.parametrize("blank", ["", " \n "])
async def test_after_an_empty_answer_the_model_is_asked_once_more(stage: Stage, blank: str) -> None:
    report = await stage.run([blank, "It is pytest."])
    assert (report.text, report.reason) == ("It is pytest.", Reason.GOAL)
    assert EMPTY_ANSWER in [event.text for event in stage.select(NoteInjected)]


STOPPED = AssistantMessage(
    (TextBlock("I continue with the search:"),),
    stop_reason=StopReason.OTHER,
    provider_stop_reason="pause_turn",
)


async def test_an_answer_that_stopped_early_is_continued(stage: Stage) -> None:
    report = await stage.run([STOPPED, STOPPED, "It is pytest."])
    assert (report.text, report.reason) == ("It is pytest.", Reason.GOAL)
    notes = [event.text for event in stage.select(NoteInjected)]
    assert notes == [STOPPED_ANSWER.format(reason=" (pause_turn)")] * 2


@pytest.mark.parametrize("error", [ModelRefused("bad key"), ModelUnavailable("overloaded")])
async def test_a_failed_model_call_gives_an_error_report_with_the_last_text(
    stage: Stage, error: Exception
) -> None:
    report = await stage.run([["so far so good", call("read", path="notes.txt")], error])
    assert (report.reason, report.text, report.recovered) == (Reason.ERROR, "so far so good", False)
    assert str(error) in report.error


@pytest.mark.parametrize(
    ("stop", "error"), [(StopReason.LENGTH, "output limit"), (StopReason.REFUSAL, "refused")]
)
async def test_an_incomplete_answer_is_an_error(stage: Stage, stop: StopReason, error: str) -> None:
    report = await stage.run([AssistantMessage((TextBlock("half a sen"),), stop)])
    assert report.reason is Reason.ERROR and error in report.error and report.text == "half a sen"


async def test_every_event_has_its_prompt_id(stage: Stage) -> None:
    await stage.run(
        {
            "PARENT": [[call("task", prompt="CHILD")], "end"],
            "CHILD": [[call("read", path="notes.txt")], "done"],
        }
    )
    of_runs = [event for event in stage.events if event.run]
    assert {event.run for event in of_runs} == {"1", "1.1.1"}
    assert all(
        event.prompt_id == f"{stage.session.id}#{event.run}#{event.turn}" for event in of_runs
    )


async def test_tokens_of_children_are_in_the_parents_report_and_in_the_ledger(stage: Stage) -> None:
    def make_answer(text: str, read: int, wrote: int) -> AssistantMessage:
        return AssistantMessage((TextBlock(text),), usage=Usage(read, wrote))

    report = await stage.run(
        {
            "PARENT": [
                [call("task", prompt="CHILD"), call("task", prompt="CHILD")],
                make_answer("end", 500, 5),
            ],
            "CHILD": [make_answer("done", 100, 7)],
        }
    )
    assert report.usage.input_tokens >= 500 + 2 * 100
    assert report.usage.output_tokens >= 5 + 2 * 7
    assert Ledger.from_events(stage.events).child_tokens == 2 * 107
