"""Endings of a scope: goal, limits, cancel, failed model calls."""

from __future__ import annotations

import asyncio

import pytest

from mudroom import AnyEvent, ModelError, Reason, RunConfig, SubagentTerminateMode, ToolConfig, tool
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom.errors import ModelRefused
from mudroom.events import TurnStarted

from .conftest import CONTEXT, OUTPUTS, Open, create_scope, join_texts, run_scope

READ = ToolConfig(tools=["read"])


def read_on(request: Request) -> Answer:
    """Read another line in each turn; summarise in the last one."""
    if not request.tools:
        return "So far: nothing."
    return [call("read", file_path="paper.md", offset=request.number)]


async def hang(_: Request) -> str:
    """Answer after an hour."""
    await asyncio.sleep(3600)
    return "never"


def test_terminate_modes_include_those_of_the_seed_and_those_of_an_honest_report() -> None:
    assert {"ERROR", "TIMEOUT", "GOAL", "MAX_TURNS", "CANCELLED", "BUDGET", "LOOP"} <= {
        mode.value for mode in SubagentTerminateMode
    }


async def test_the_turn_limit_ends_a_scope_with_a_summary(scripted: Open) -> None:
    async with scripted(read_on) as (session, model):
        scope = await run_scope(
            session, run_config=RunConfig(max_turns=2), tool_config=READ, output_config=OUTPUTS
        )
    assert scope.output.terminate_reason is Reason.MAX_TURNS
    assert scope.output.report is not None
    assert scope.output.report.text == "So far: nothing."
    assert len([request for request in model.requests if request.tools]) == 2


async def test_a_token_limit_ends_a_scope_with_budget(scripted: Open) -> None:
    async with scripted(read_on) as (session, _):
        scope = await run_scope(session, run_config=RunConfig(max_input_tokens=1), tool_config=READ)
    assert scope.output.terminate_reason is Reason.BUDGET


async def test_the_time_limit_cancels_a_model_call_that_hangs(scripted: Open) -> None:
    async with scripted(hang) as (session, _):
        async with asyncio.timeout(60):
            scope = await run_scope(session, run_config=RunConfig(max_time_minutes=0.05 / 60))
    assert scope.output.terminate_reason is Reason.TIMEOUT


async def test_the_time_limit_is_checked_after_a_tool_call(scripted: Open) -> None:
    @tool
    async def wait() -> str:
        "Wait a moment."
        await asyncio.sleep(0.4)
        return "late"

    def answer(request: Request) -> Answer:
        return [call("wait")] if request.tools else "Late."

    limit = RunConfig(max_time_minutes=0.2 / 60)
    async with scripted(answer) as (session, model):
        scope = await run_scope(session, run_config=limit, tool_config=ToolConfig(tools=[wait]))
    assert scope.output.terminate_reason is Reason.TIMEOUT
    assert len([request for request in model.requests if request.tools]) == 1


async def test_a_cancelled_scope_has_the_reason_cancelled(scripted: Open) -> None:
    async with scripted(hang) as (session, _):

        def cancel(event: AnyEvent) -> None:
            if isinstance(event, TurnStarted):
                asyncio.get_running_loop().call_soon(session.runs.cancel, event.run)

        session.watch(cancel)
        scope = await run_scope(session)
    assert scope.output.terminate_reason is Reason.CANCELLED


async def test_a_model_call_that_fails_for_good_raises_and_leaves_error(scripted: Open) -> None:
    async with scripted([ModelRefused("bad key")]) as (session, _):
        scope = await create_scope(session)
        with pytest.raises(ModelError, match="bad key"):
            await scope.run_non_interactive(CONTEXT)
    assert scope.output.terminate_reason is Reason.ERROR


async def test_when_all_calls_fail_the_model_is_asked_to_try_another_way(scripted: Open) -> None:
    async with scripted([[call("read", file_path="none.md")], "Done."]) as (session, model):
        await run_scope(session, tool_config=READ)
    assert "All tool calls of this turn failed" in join_texts(model.requests[1].messages[-1])


async def test_without_outputs_a_model_that_calls_no_tool_has_reached_its_goal(
    scripted: Open,
) -> None:
    async with scripted(["Done."]) as (session, _):
        scope = await run_scope(session)
    assert scope.output.terminate_reason is Reason.GOAL
    assert scope.output.report is not None
    assert scope.output.report.text == "Done."
