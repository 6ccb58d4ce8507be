"""Questions to the users of MCP hosts: both revisions, hosts that cannot ask, and silence."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types
import pytest
from tests.integrations.mcp_servers.test_elicitation import FORM, make_asking
from tests.waiting import SECONDS

from mudroom import Integrations
from mudroom.testing import Request, call

from .conftest import ERAS, MakeHost, get_text, get_values


def write_twice(request: Request) -> Any:
    if request.turn < 2:
        return call("write", file_path=f"f{request.turn}.md", content="x")
    return "Done."


class User:
    """The user of a host: answers each question with the next answer."""

    def __init__(self, *answers: str) -> None:
        self.texts: list[str] = []
        self._answers = list(answers)

    async def __call__(self, _: Any, params: Any) -> mcp_types.ElicitResult:
        self.texts.append(params.message)
        answer = self._answers.pop(0)
        if answer in ("decline", "cancel"):
            return mcp_types.ElicitResult(action=answer)
        return mcp_types.ElicitResult(action="accept", content={"answer": answer})


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("answers", "written", "denied"),
    [
        (("allow once", "allow once"), 2, 0),
        (("always allow",), 2, 0),
        (("decline", "allow once"), 1, 1),
        (("no", "cancel"), 0, 2),
    ],
)
async def test_the_user_decides(
    make_host: MakeHost,
    tmp_path: Any,
    era: str,
    answers: tuple[str, ...],
    written: int,
    denied: int,
) -> None:
    user = User(*answers)
    host = make_host(write_twice)
    async with host.connect(era, elicitation_callback=user) as client:
        result = await client.call_tool("task", {"prompt": "Write."})
    assert len(list((tmp_path / "project").iterdir())) == written
    assert len(user.texts) == len(answers)
    assert user.texts[0].startswith("Allow write? Agent general, run 1.\nfile_path: f0.md\n")
    denials = get_values(result)["permission_denials"]
    assert len(denials) == denied
    assert not denials or denials[0] == {"run": "1", "tool": "write", "why": "the user said no"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_that_cannot_ask_says_no(make_host: MakeHost, era: str) -> None:
    host = make_host(write_twice)
    async with host.connect(era) as client:
        result = await client.call_tool("task", {"prompt": "Write."})
    assert not result.is_error
    assert "[refused: write (the MCP host cannot ask its user)]" in get_text(result)
    assert len(get_values(result)["permission_denials"]) == 2


async def test_questions_of_children_reach_the_user(make_host: MakeHost) -> None:
    def answer(request: Request) -> Any:
        if request.prompt == "Write.":
            return write_twice(request)
        return "Done." if request.results else call("task", prompt="Write.", agent="general")

    user = User("always allow")
    host = make_host(answer)
    async with host.connect(elicitation_callback=user) as client:
        result = await client.call_tool("task", {"prompt": "Delegate."})
    assert user.texts[0].startswith("Allow write? Agent general, run 1.1.1.\n")
    children = [{"run": "1.1.1", "agent": "general", "reason": "GOAL"}]
    assert get_values(result)["children"] == children


async def test_silence_counts_as_no(make_host: MakeHost) -> None:
    host = make_host(write_twice, answer_seconds=0.01)
    async with host.connect_raw() as raw:
        await raw.call(1, "task", prompt="Write.")
        answer = await raw.finish(1)
        text = answer["result"]["content"][0]["text"]
        assert "[refused: write (no one answered within 0.01 s)]" in text
        asked = [message for message in raw.lines if message.get("method")]
        assert {message["method"] for message in asked} >= {"elicitation/create"}


async def test_a_later_call_asks_again(make_host: MakeHost) -> None:
    """A call that stops waiting takes its question back; that of `task_result` asks again."""
    host = make_host(write_twice)
    async with host.connect_raw() as raw:
        await raw.call(1, "task", prompt="Write.", wait=0.2)
        first = await raw.finish(1)
        assert first["result"]["structuredContent"]["state"] in ("working", "asking")
        await raw.call(2, "task_result", task="t1")
        answered: set[Any] = set()
        async with asyncio.timeout(SECONDS):
            while not raw.list_answers(2):
                for message in list(raw.lines):
                    is_question = message.get("method") == "elicitation/create"
                    if is_question and message["id"] not in answered:
                        answered.add(message["id"])
                        result = {"action": "accept", "content": {"answer": "allow once"}}
                        await raw.write({"jsonrpc": "2.0", "id": message["id"], "result": result})
                await asyncio.sleep(0.01)
        second = await raw.finish(2)
        assert second["result"]["structuredContent"]["permission_denials"] == []


async def test_a_wrong_state_is_an_error_of_the_protocol(make_host: MakeHost) -> None:
    host = make_host([])
    async with host.connect_tasks() as raw:
        params: dict[str, Any] = {"name": "task", "arguments": {}, "requestState": "forged"}
        answer = await raw.ask("tools/call", declares=False, **params)
    assert answer["error"]["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
async def test_the_form_of_a_server_of_the_task_reaches_the_user(
    make_host: MakeHost, era: str
) -> None:
    asked: list[str] = []

    async def answer_form(_: Any, params: Any) -> mcp_types.ElicitResult:
        asked.append(params.message)
        assert params.requested_schema["properties"]["color"]["enum"] == ["red", "blue"]
        return mcp_types.ElicitResult(action="accept", content={"color": "blue"})

    def answer(request: Request) -> Any:
        if request.turn == 0:
            return call("mcp_find", query="ask")
        if request.turn == 1:
            return call("mcp_call", tool="mcp__quick__ask", arguments={})
        return request.results[0].text

    host = make_host(
        answer, "bypassPermissions", {"integrations": Integrations(mcp_servers=[make_asking(FORM)])}
    )
    async with host.connect(era, elicitation_callback=answer_form) as client:
        result = await client.call_tool("task", {"prompt": "Ask."})
    assert asked == ["MCP server quick asks: Which color?"]
    assert json.loads(get_text(result).splitlines()[0])["content"] == {"color": "blue", "count": 2}
