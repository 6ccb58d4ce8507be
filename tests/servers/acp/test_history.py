"""Recorded sessions: shown as they were live; a new process ends prompts of a stopped one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.signals import send_signal
from tests.waiting import SECONDS

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import SUBAGENTS, Editor, Line, MakeEditor
from .trees import act

TREE: Line = {
    "tools": 2,
    "end": "answer",
    "background": False,
    "children": [
        {"tools": 1, "end": "answer", "background": False, "children": []},
        {
            "tools": 0,
            "end": "error",
            "background": True,
            "children": [{"tools": 1, "end": "answer", "background": False, "children": []}],
        },
    ],
}


def list_shown(editor: Editor) -> dict[str, list[Any]]:
    shown: dict[str, list[Any]] = {}
    for line in editor.lines:
        if line.get("method") == "session/update":
            params = line["params"]
            shown.setdefault(params["sessionId"], []).append(params["update"])
    return {session: join_chunks(updates) for session, updates in shown.items()}


def sort_all(shown: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {session: sorted(map(json.dumps, updates)) for session, updates in shown.items()}


def join_chunks(updates: list[Line]) -> list[Any]:
    """Return updates with the text of each message in one piece; sizes of windows are left out."""
    skipped = ("user_message_chunk", "available_commands_update", "usage_update")
    kept = [each for each in updates if each["sessionUpdate"] not in skipped]

    def get_key(update: Line) -> Any:
        is_chunk = update["sessionUpdate"].endswith("_chunk")
        return update["sessionUpdate"] if is_chunk else json.dumps(update)

    joined: list[Any] = []
    for key, group in groupby(kept, get_key):
        members = list(group)
        if members[0]["sessionUpdate"].endswith("_chunk"):
            joined.append((key, "".join(each["content"]["text"] for each in members)))
        else:
            joined += members
    return joined


async def test_a_loaded_session_shows_what_was_shown_live(make_editor: MakeEditor) -> None:
    editor = make_editor(act)
    async with editor.use() as session:
        await editor.ask(session, json.dumps(TREE))
        live = list_shown(editor)
        assert await editor.request("session/close", sessionId=session) == {}
        editor.lines.clear()
        loaded = await editor.load(session)
        history = list_shown(editor)
    # Calls that run in parallel may be stored in another order than they are shown.
    assert sort_all(history) == sort_all(live)
    assert len(live) == 4
    assert editor.join_text(session, "user_message_chunk") == json.dumps(TREE)
    assert loaded["modes"]["currentModeId"] == "default"


async def test_the_work_of_a_load_grows_with_its_calls_and_not_faster(
    make_editor: MakeEditor,
) -> None:
    child: Line = {"tools": 20, "end": "answer", "background": False, "children": []}
    work: list[int] = []
    shown: list[int] = []
    events: list[str] = []
    editor = make_editor(act)
    async with editor.serve():
        for children in (2, 2, 10):  # the first load imports modules
            tree: Line = {**child, "tools": 0, "children": [child] * children}
            session = await editor.open()
            await editor.ask(session, json.dumps(tree))
            await editor.request("session/close", sessionId=session)
            editor.lines.clear()
            profiler = sys.getprofile()
            events.clear()
            sys.setprofile(lambda _frame, event, _argument: events.append(event))
            try:
                await editor.load(session)
            finally:
                sys.setprofile(profiler)
            work.append(events.count("call"))
            shown.append(len(editor.list_updates("tool_call_update")))
    assert shown[2] == 5 * shown[1]
    assert work[2] < 5 * work[1]


async def test_a_resumed_session_shows_nothing_and_knows_the_conversation(
    make_editor: MakeEditor,
) -> None:
    editor = make_editor(["One.", "Two.", "Three."])
    async with editor.use() as session:
        await editor.ask(session, "First.")
        await editor.request("session/close", sessionId=session)
        editor.lines.clear()
        await editor.load(session, "session/resume")
        assert editor.list_updates("agent_message_chunk") == []
        await editor.ask(session, "Second.")
        await editor.load(session)
        await editor.ask(session, "Third.")
    assert len(editor.model.requests[-1].messages) == 5
    totals = editor.list_updates("usage_update")[-1]["_meta"]["mudroom"]
    assert totals["totalTokens"] > 0


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
