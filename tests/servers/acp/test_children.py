"""Children of a session: subagent sessions in their order, and tool calls without them."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from tests.waiting import wait_until

from mudroom._adapters.journals.sessions import open_store, read_events
from mudroom._core.events import StoredEvent
from mudroom._projections.run_tree import RunTree
from mudroom.testing import Request, call
from mudroom_hosts.acp.params import ClientAbilities
from mudroom_hosts.acp.updates import SessionUpdates

from .conftest import Editor, MakeEditor
from .trees import act, count_nodes, make_tree

TREES = 500 if os.environ.get("MUDROOM_LONG") else 12


def check_order(editor: Editor, root: str) -> dict[str, list[str]]:
    """Check that each child is announced before its lines, and idle after them.

    Return the states of each child in their order.
    """
    states: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    known_calls: set[tuple[str, str]] = set()
    for line in editor.lines:
        if line.get("method") not in ("session/update", "session/request_permission"):
            continue
        session = line["params"]["sessionId"]
        if session != root:
            assert states[session][-1] != "idle", "a line after the end of the child"
        update = line["params"].get("update", {})
        kind = update.get("sessionUpdate")
        if kind == "subagent_update":
            child = update["sessionId"]
            if child not in states:
                assert update["state"] == {"state": "running"}
                assert update["title"]
                assert update["capabilities"] == {"cancel": {}}
                parents[child] = session
            assert parents[child] == session
            states.setdefault(child, []).append(update["state"]["state"])
            if update["state"]["state"] == "idle":
                assert update["state"]["stopReason"]
        elif kind == "tool_call":
            known_calls.add((session, update["toolCallId"]))
        elif kind == "tool_call_update":
            assert (session, update["toolCallId"]) in known_calls
    return states


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("subagents", [True, False])
async def test_random_trees_are_shown_whole_with_the_totals_of_the_run_tree(
    make_editor: MakeEditor, *, subagents: bool
) -> None:
    rng = random.Random(17)
    editor = make_editor(act, subagents=subagents)
    async with editor.serve():
        for _ in range(TREES):
            node = make_tree(rng) | {"end": "answer"}
            session = await editor.open()
            editor.lines.clear()
            result = await editor.ask(session, json.dumps(node))
            assert result["stopReason"] == "end_turn"
            tree = RunTree.from_events(await read_events(open_store(editor.home), session))
            children = [run for run in tree.runs.values() if run.depth]
            # A run that fails stops its background children, which then start none.
            assert bool(node["children"]) <= len(children) <= count_nodes(node) - 1
            totals = editor.list_updates("usage_update")[-1]["_meta"]["mudroom"]
            assert totals == {
                "children": len(children),
                "calls": sum(run.tool_call_count for run in tree.runs.values()),
                "totalTokens": tree.roots[0].total_usage.total_tokens,
                "childTokens": tree.roots[0].descendant_usage.total_tokens,
            }
            assert result["usage"]["totalTokens"] == totals["totalTokens"]
            states = check_order(editor, session)
            if subagents:
                expected = [f"{session}/{run.run_id}" for run in children]
                assert sorted(states) == sorted(expected)
                assert all(each == ["running", "idle"] for each in states.values())
            else:
                assert states == {}
                check_calls(editor, len(children))
            assert await editor.request("session/close", sessionId=session) == {}


def check_calls(editor: Editor, children: int) -> None:
    """Check that each call begins once and ends exactly once."""
    started = [each["toolCallId"] for each in editor.list_updates("tool_call")]
    ended = Counter(
        each["toolCallId"]
        for each in editor.list_updates("tool_call_update")
        if each.get("status") in ("completed", "failed")
    )
    assert len(set(started)) == len(started)
    assert ended == Counter(started)
    shown = [each for each in editor.list_updates("tool_call") if each["kind"] == "think"]
    tasks = [each for each in editor.list_updates("tool_call") if each.get("name") == "task"]
    assert len(shown) + len(tasks) == children


async def test_a_child_has_its_prompt_its_text_and_its_calls_in_its_own_session(
    make_editor: MakeEditor,
) -> None:
    def answer(request: Request) -> Any:
        if request.prompt == "Ask.":
            return "Done." if request.turn else call("task", prompt="Look.", description="a look")
        return "It is mud." if request.turn else call("glob", pattern="*")

    editor = make_editor(answer)
    async with editor.use() as session:
        await editor.ask(session, "Ask.")
    child = f"{session}/1.1.1"
    message = editor.list_updates("session_message", child)[0]
    assert message["content"][0]["text"] == "Look."
    assert (message["senderSessionId"], message["recipientSessionId"]) == (session, child)
    assert editor.join_text(child) == "It is mud."
    assert editor.join_text(session) == "Done."
    assert [each["name"] for each in editor.list_updates("tool_call", child)] == ["glob"]
    assert editor.list_updates("subagent_update")[0]["title"] == "a look"


async def test_a_child_is_cancelled_alone_and_its_parent_goes_on(make_editor: MakeEditor) -> None:
    entered = asyncio.Event()

    async def answer(request: Request) -> Any:
        if request.prompt == "Slow.":
            entered.set()
            await asyncio.Event().wait()
        if request.turn == 0:
            return (
                [call("task", prompt="Slow."), call("task", prompt="Quick.")]
                if (request.prompt == "Ask.")
                else "Quick result."
            )
        return " | ".join(result.text for result in request.results)

    editor = make_editor(answer)
    async with editor.use() as session:
        prompt = editor.start_prompt(session, "Ask.")
        await entered.wait()
        editor.notify("session/cancel", sessionId=f"{session}/1.1.1")
        result = await editor.finish(prompt)
    assert result["stopReason"] == "end_turn"
    updates = editor.list_updates("subagent_update")
    ends = {each["sessionId"]: each["state"].get("stopReason") for each in updates}
    assert ends == {f"{session}/1.1.1": "cancelled", f"{session}/1.1.2": "end_turn"}
    assert "cancelled" in editor.join_text(session).lower()
    assert "Quick result." in editor.join_text(session)


async def test_a_cancel_ends_fifty_children_and_the_prompt(make_editor: MakeEditor) -> None:
    waiting: set[str] = set()

    async def answer(request: Request) -> Any:
        if request.prompt == "Ask.":
            return [call("task", prompt=f"Wait {number}.") for number in range(50)]
        waiting.add(request.prompt)
        return await asyncio.Event().wait()

    editor = make_editor(answer)
    async with editor.use() as session:
        prompt = editor.start_prompt(session, "Ask.")
        await wait_until(lambda: len(waiting) == 50)
        editor.notify("session/cancel", sessionId=session)
        result = await editor.finish(prompt)
    assert result["stopReason"] == "cancelled"
    states = check_order(editor, session)
    assert len(states) == 50
    assert all(each == ["running", "idle"] for each in states.values())


async def test_a_subagent_takes_no_prompt_of_the_client(make_editor: MakeEditor) -> None:
    editor = make_editor(["Hello."])
    async with editor.use() as session:
        error = await editor.ask(f"{session}/1.1.1", "Hi.")
    assert error["code"] == -32002
    assert "is a subagent" in error["message"]


async def test_without_subagents_a_child_shows_its_state_in_the_call_that_started_it(
    make_editor: MakeEditor,
) -> None:
    def answer(request: Request) -> Any:
        if request.prompt == "Ask.":
            return "Done." if request.turn else call("task", prompt="Look.", description="a look")
        return call("glob", pattern=f"*{request.turn}") if request.turn < 8 else "It is mud."

    editor = make_editor(answer, subagents=False)
    async with editor.use() as session:
        await editor.ask(session, "Ask.")
    assert [each["name"] for each in editor.list_updates("tool_call")] == ["task"]
    assert not [line for line in editor.lines if "/1.1.1" in json.dumps(line)]
    events = await read_events(open_store(editor.home), session)
    for seconds in (0.0, 0.1, 1.0):
        texts = fold_texts(session, events, seconds)
        states = [text for text in texts if text.startswith("general: ")]
        assert texts[0] == "Look."
        assert "It is mud." in texts[-1]
        child = [event for event in events if event.run == "1.1.1"]
        assert len(states) <= len(child) * seconds * 4
        assert bool(states) == bool(seconds)
        assert all("tokens)" in text and " call" in text for text in states)


def fold_texts(session: str, events: list[StoredEvent], seconds: float) -> list[str]:
    """Return the texts of a call while its child works, with so many seconds between events."""
    sent: list[dict[str, Any]] = []
    updates = SessionUpdates(
        session,
        "/",
        ClientAbilities(),
        lambda _, update: sent.append(update),
        read_version=lambda _: None,
        find_window=lambda _: 0,
    )
    for number, event in enumerate(events):
        updates.apply(replace(event, at=number * seconds))
    return [
        each["content"][-1]["content"]["text"]
        for each in sent
        if each["sessionUpdate"] == "tool_call_update" and each.get("content")
    ]
