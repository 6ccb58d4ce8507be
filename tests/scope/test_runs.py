"""Runs of a scope: endings, limits, messages, and the environment that begins them."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from pathlib import Path

import pytest

from mudroom import (
    ContextState,
    ModelError,
    Reason,
    RunConfig,
    SubagentTerminateMode,
    ToolConfig,
    tool,
)
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom.errors import ModelRefused
from mudroom.scope.subagent import MAX_WALKED_FILES, draw_tree, make_environment_messages

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


async def test_a_model_call_that_fails_for_good_raises_and_leaves_error(scripted: Open) -> None:
    async with scripted([ModelRefused("bad key")]) as (session, _):
        scope = await create_scope(session)
        with pytest.raises(ModelError, match="bad key"):
            await scope.run_non_interactive(CONTEXT)
    assert scope.output.terminate_reason is Reason.ERROR


SCRIPT = [["Looking.", call("read", file_path="paper.md")], "Done."]
MESSAGES = ["Looking.", "**Executing tool: read with args {'file_path': 'paper.md'}**", "Done."]


async def test_when_all_calls_fail_the_model_is_asked_to_try_another_way(scripted: Open) -> None:
    async with scripted([[call("read", file_path="none.md")], "Done."]) as (session, model):
        await run_scope(session, tool_config=READ)
    assert "All tool calls of this turn failed" in join_texts(model.requests[1].messages[-1])


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


async def test_scopes_that_run_at_the_same_time_get_their_own_messages(scripted: Open) -> None:
    messages: dict[str, list[str]] = {"a": [], "b": []}
    async with scripted(lambda request: f"Read {request.system.split()[5]}") as (session, _):
        async with asyncio.TaskGroup() as group:
            for name, received in messages.items():
                scope = await create_scope(session, on_message=received.append)
                context = ContextState(doc_path=name)
                group.create_task(scope.run_non_interactive(context))
    assert messages == {"a": ["Read a."], "b": ["Read b."]}


async def test_a_scope_begins_with_the_environment_and_the_reply(scripted: Open) -> None:
    async with scripted(["Done."]) as (session, model):
        await run_scope(session)
        folder = session.cwd
    first, second, third = model.requests[0].messages
    for fact in (time.strftime("%Y-%m-%d"), platform.system(), folder, "└───paper.md"):
        assert fact in join_texts(first)
    assert join_texts(second) == "Got it. Thanks for the context!"
    assert join_texts(third) == "Get Started!"


def test_files_are_drawn_as_a_tree_with_folders_first() -> None:
    paths = ["README.md", "docs/a.md", "docs/b/c.md", "src/main.py", "zoo.txt"]
    assert list(draw_tree(paths, 200)) == [
        "├───docs/",
        "│   ├───b/",
        "│   │   └───c.md",
        "│   └───a.md",
        "├───src/",
        "│   └───main.py",
        "├───README.md",
        "└───zoo.txt",
    ]


def test_a_tree_that_is_cut_shows_the_upper_levels() -> None:
    paths = [f"a/deep/{n}.txt" for n in range(100)] + ["b/x.txt", "b/y.txt", "c.txt"]
    assert list(draw_tree(paths, 5)) == [
        "├───a/",
        "│   └───deep/...",
        "├───b/",
        "│   ├───x.txt",
        "│   └───...",
        "└───c.txt",
    ]


def test_an_empty_folder_has_an_empty_tree() -> None:
    assert list(draw_tree([], 200)) == []


def test_a_deep_path_and_a_hostile_name_are_drawn_on_one_line_each() -> None:
    lines = list(draw_tree(["/".join("d" * 300), "line\nbreak\x1b[31m.txt"], 200))
    assert len(lines) == 200
    assert lines[-1] == "└───line break.txt"


def test_a_big_folder_is_read_in_part_and_the_message_says_so(tmp_path: Path) -> None:
    for folder in range(6):
        (tmp_path / f"part{folder}").mkdir()
        for n in range(1_000):
            (tmp_path / f"part{folder}" / f"{n}.txt").touch()
    start = time.process_time()
    message, _ = make_environment_messages(SharedWorkspace(str(tmp_path)))
    assert time.process_time() - start < 5
    text = join_texts(message)
    assert f"only the first {MAX_WALKED_FILES:,} files were looked at" in text
    assert "part0/" in text
    assert len(text.splitlines()) < 220
