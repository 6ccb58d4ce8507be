"""`on_message`: each answer's text and each tool call, in order; its faults do not end the run."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mudroom import ContextState, Reason, ToolConfig
from mudroom._adapters.models.scripted import call

from .conftest import CONTEXT, Open, create_scope, run_scope

READ = ToolConfig(tools=["read"])
SCRIPT = [["Looking.", call("read", file_path="paper.md")], "Done."]
MESSAGES = ["Looking.", "**Executing tool: read with args {'file_path': 'paper.md'}**", "Done."]


async def test_on_message_gets_each_text_and_each_tool_line(scripted: Open) -> None:
    messages: list[str] = []
    pattern = "x" * 400
    script = [["Looking.", call("grep", pattern=pattern)], "Done."]
    config = ToolConfig(tools=["grep"])
    async with scripted(script) as (session, _):
        await run_scope(session, tool_config=config, on_message=messages.append)
    arguments = str({"pattern": pattern})[:250]
    assert messages == ["Looking.", f"**Executing tool: grep with args {arguments}**", "Done."]


async def test_an_async_on_message_is_awaited_in_order(scripted: Open) -> None:
    messages: list[str] = []
    delays = iter([0.05, 0.0, 0.02])

    async def keep(message: str) -> None:
        await asyncio.sleep(next(delays))
        messages.append(message)

    async with scripted(SCRIPT) as (session, _):
        await run_scope(session, tool_config=READ, on_message=keep)
    assert messages == MESSAGES


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_on_message_that_raises_is_logged_once_and_the_run_continues(
    is_async: bool, scripted: Open, caplog: pytest.LogCaptureFixture
) -> None:
    messages: list[str] = []

    def fail(message: str) -> None:
        messages.append(message)
        raise ValueError("the screen is gone")

    async def fail_later(message: str) -> None:
        fail(message)

    with caplog.at_level(logging.ERROR, "mudroom"):
        async with scripted(SCRIPT) as (session, _):
            on_message = fail_later if is_async else fail
            scope = await run_scope(session, tool_config=READ, on_message=on_message)
    assert scope.output.terminate_reason is Reason.GOAL
    assert messages == MESSAGES
    (record,) = caplog.records
    assert "on_message of scope 'doc-extractor' failed: ValueError: the screen is gone" in (
        record.getMessage()
    )


async def test_cancelling_a_scope_stops_an_on_message_that_hangs(scripted: Open) -> None:
    started = asyncio.Event()

    async def hang(message: str) -> None:
        started.set()
        await asyncio.sleep(3600)

    async with scripted(SCRIPT) as (session, _):
        scope = await create_scope(session, tool_config=READ, on_message=hang)
        task = asyncio.create_task(scope.run_non_interactive(CONTEXT))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)


async def test_scopes_that_run_at_the_same_time_get_their_own_messages(scripted: Open) -> None:
    messages: dict[str, list[str]] = {"a": [], "b": []}
    async with scripted(lambda request: f"Read {request.system.split()[5]}") as (session, _):
        async with asyncio.TaskGroup() as group:
            for name, received in messages.items():
                scope = await create_scope(session, on_message=received.append)
                context = ContextState(doc_path=name)
                group.create_task(scope.run_non_interactive(context))
    assert messages == {"a": ["Read a."], "b": ["Read b."]}
