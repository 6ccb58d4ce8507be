"""`kill -9` and SIGTERM of `mudroom acp` while children work: a new process ends their prompt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.signals import send_signal
from tests.waiting import SECONDS

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import SUBAGENTS, Editor

CHILDREN = 3


@asynccontextmanager
async def start_server(folder: Path, url: str) -> AsyncGenerator[tuple[Process, Editor]]:
    """Start `mudroom acp`, and an editor that shows children as sessions."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "MUDROOM_HOME": str(folder / "home"),
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": url,
        "MUDROOM_MODEL": "anthropic:claude",
    }
    command = (sys.executable, "-m", "mudroom", "acp")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=environ, cwd=folder, limit=1 << 24
    )
    editor = Editor(folder, [], SUBAGENTS, {})
    assert process.stdin and process.stdout
    try:
        async with editor.use_pipes(process.stdout, process.stdin):
            await editor.request("initialize", protocolVersion=1, clientCapabilities=SUBAGENTS)
            yield process, editor
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_prompt_of_a_stopped_process_ends_in_a_new_one(
    tmp_path: Path, number: signal.Signals
) -> None:
    working: set[str] = set()
    all_work = asyncio.Event()
    is_dead = False

    async def answer(request: ServerRequest) -> ServerAnswer:
        prompt = str(request.messages[0]["content"])
        if "Ask." in prompt:
            if len(request.messages) > 1:
                return "".join(str(each["content"]) for each in request.messages[2:])
            return [
                ToolCallBlock(f"t{number}", "task", {"prompt": f"Slow {number}."})
                for number in range(CHILDREN)
            ]
        if is_dead:
            return "Slow result."
        working.add(prompt)
        if len(working) == CHILDREN:
            all_work.set()
        await asyncio.Event().wait()
        return ""

    async with ModelServer(answer) as model:
        async with start_server(tmp_path, model.url) as (process, editor):
            session = await editor.open()
            editor.start_prompt(session, "Ask.")
            async with asyncio.timeout(SECONDS):
                await all_work.wait()
            send_signal(process, number)
            async with asyncio.timeout(SECONDS):
                await process.wait()
        is_dead = True
        async with start_server(tmp_path, model.url) as (process, editor):
            await editor.load(session)
            states = editor.list_states()
            assert list(states.values()) == [["running", "unknown"]] * CHILDREN
            assert editor.list_updates("tool_call_update")[-1]["status"] == "pending"
            result = await editor.ask(session, "Go on.")
            assert result["stopReason"] == "end_turn"
            ended = editor.list_states()
            assert ended == {child: ["running", "unknown", "running", "idle"] for child in states}
            assert editor.join_text(session).count("Slow result.") >= CHILDREN
            editor.close()
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == 0
