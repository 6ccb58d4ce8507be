"""Length of answers: each request allows no more tokens than the budgets have left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Stage

from mudroom import (
    AssistantMessage,
    Budget,
    Reason,
    TextBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._core.messages import StopReason
from mudroom.testing import Request

from ..worker_kinds import WORKERS

WORDS = 400
"""Tokens of an answer that nothing cuts."""


def obey(request: Request) -> AssistantMessage:
    """Read on with long answers, cut at the tokens that the request allows, as a provider does.

    A request has 50 tokens, and the answers before it.
    """
    length = min(WORDS, request.max_tokens or WORDS)
    answers = [m for m in request.messages if isinstance(m, AssistantMessage)]
    sent = 50 + sum(message.usage.output_tokens for message in answers)
    usage = Usage(input_tokens=sent, output_tokens=length)
    if length < WORDS or not request.tools:
        return AssistantMessage((TextBlock("cut"),), StopReason.LENGTH, usage)
    arguments = {"path": "notes.txt", "limit": request.turn + 1}
    call = ToolCallBlock(f"c{request.number}", "read", arguments)
    return AssistantMessage((TextBlock("so far"), call), StopReason.CALLS, usage)


async def test_output_tokens_are_cut_to_what_is_left(stage: Stage) -> None:
    report = await stage.run(obey, prompt_budget=Budget(output_tokens=1_000))
    *turns, summary = stage.model.requests
    assert [request.max_tokens for request in turns] == [750, 350]
    assert summary.tools == () and summary.max_tokens == 256
    assert (report.reason, report.usage.output_tokens) == (Reason.BUDGET, 400 + 350 + 256)


async def test_total_tokens_leave_room_for_the_request(stage: Stage) -> None:
    report = await stage.run(obey, prompt_budget=Budget(total_tokens=3_000))
    *turns, _ = stage.model.requests
    spent_before_summary = report.usage.total_tokens - (50 + 400 * (report.turns - 1) + WORDS)
    assert report.reason is Reason.BUDGET and spent_before_summary <= 3_000
    limits = [request.max_tokens for request in turns]
    held = 3_000 // 4
    assert limits[0] and 500 < limits[0] < 3_000 - 500 - held, "the request has tokens, too"
    assert limits[1] and 400 < limits[1] < 3_000 - 450 - 450 - held


async def test_money_cuts_the_answer_where_the_price_is_known(stage: Stage) -> None:
    name = "anthropic:claude-sonnet-4-5"  # 15 dollars for a million tokens
    report = await stage.run(obey, name=name, prompt_budget=Budget(usd=0.008))
    max_tokens = stage.model.requests[0].max_tokens
    assert max_tokens and 100 < max_tokens < 150, "a quarter is held for the last turn"
    assert report.reason is Reason.BUDGET and report.usd and report.usd < 0.008 + 0.008


async def test_no_request_is_cut_without_a_limit(stage: Stage) -> None:
    await stage.run(obey, prompt_budget=Budget(turns=2, input_tokens=10**6))
    assert {request.max_tokens for request in stage.model.requests} == {None}


async def test_an_answer_that_the_model_cuts_itself_is_still_an_error(stage: Stage) -> None:
    cut = AssistantMessage((TextBlock("cut"),), StopReason.LENGTH, Usage(10, 10))
    report = await stage.run([cut], prompt_budget=Budget(total_tokens=10_000))
    assert report.reason is Reason.ERROR and "output limit" in report.error


@pytest.mark.parametrize("worker", WORKERS)
async def test_the_session_cuts_answers_of_tasks(worker: str, stage: Stage, tmp_path: Path) -> None:
    options: dict[str, Any] = {"worker": worker, "budget": Budget(output_tokens=500)}
    async with stage.open(obey, **options) as session:
        first = await session.task("a")
        second = await session.task("b")
    allowed = [request.max_tokens for request in stage.model.requests]
    assert allowed == [375, 256], "an answer, and the summary that was held for"
    assert (first.reason, second.reason, second.turns) == (Reason.BUDGET, Reason.BUDGET, 0)
