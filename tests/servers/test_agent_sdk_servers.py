"""MCP servers outside the host: their states, restarts, and their questions to the user."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from tests.integrations.mcp_servers.servers import make_quick
from tests.servers.conftest import Line, MakeHost, SdkHost

from mudroom import ServerSpec
from mudroom.models.scripted import Answer, Request, call

COLOR = {
    "type": "object",
    "properties": {"color": {"type": "string"}},
    "required": ["color"],
}
FORM = {"mode": "form", "message": "Which color?", "requestedSchema": COLOR}
ADDRESS = {
    "mode": "url",
    "message": "Log in.",
    "url": "https://example.com/login",
    "elicitationId": "e1",
}
FIND = call("mcp_find", query="pid")
USE = call("mcp_call", tool="mcp__quick__pid", arguments={})


def make_broken() -> ServerSpec:
    return ServerSpec(
        name="broken",
        origin="test",
        scope="project",
        command=sys.executable,
        args=("-c", "raise SystemExit('no such port')"),
    )


async def list_servers(host: SdkHost) -> dict[str, Line]:
    """Return the entries of mcp_status by name."""
    response = await host.request("mcp_status")
    return {server["name"]: server for server in response["response"]["mcpServers"]}


async def test_the_states_of_servers_are_those_of_now(make_host: MakeHost) -> None:
    def answer(request: Request) -> Answer:
        return [call("mcp_find", query="add")] if request.turn == 0 else "Done."

    host = make_host(answer)
    host.servers = [make_quick(), make_broken()]
    async with host.serve():
        await host.request("initialize")
        before = await list_servers(host)
        await host.ask("Find.")
        after = await list_servers(host)
        await host.ask("Again.")
    assert before == {
        "quick": {"name": "quick", "status": "pending", "scope": "dynamic"},
        "broken": {"name": "broken", "status": "pending", "scope": "project"},
    }
    quick, broken = after["quick"], after["broken"]
    assert quick["status"] == "connected"
    assert {"name": "add", "description": "Add two numbers."} in quick["tools"]
    assert "error" not in quick
    assert broken["status"] == "failed"
    assert "no such port" in broken["error"]
    assert "tools" not in broken
    first, second = host.list_lines("system", "init")
    assert [server["status"] for server in first["mcp_servers"]] == ["pending", "pending"]
    assert second["mcp_servers"] == [
        {"name": "quick", "status": "connected"},
        {"name": "broken", "status": "failed"},
    ]


async def test_a_host_starts_a_server_again(make_host: MakeHost) -> None:
    host = make_host([[FIND], [USE], "Done.", [USE], "Done."])
    host.servers = [make_quick(), make_broken()]
    async with host.serve():
        await host.request("initialize")
        await host.ask("Use it.")
        again = await host.request("mcp_reconnect", serverName="quick")
        failed = await host.request("mcp_reconnect", serverName="broken")
        unknown = await host.request("mcp_reconnect", serverName="quack")
        states = {name: entry["status"] for name, entry in (await list_servers(host)).items()}
        await host.ask("Use it.")
    assert again["subtype"] == "success", again
    assert failed["subtype"] == unknown["subtype"] == "error"
    assert "no such port" in failed["error"]
    assert "quick" in unknown["error"]
    assert states == {"quick": "connected", "broken": "failed"}
    lines = [line["message"]["content"][0] for line in host.list_lines("user")]
    _, first, second = (line["content"] for line in lines)
    assert first.isdigit()
    assert second.isdigit()
    assert first != second


async def test_a_request_during_a_change_waits_until_the_session_is_open(
    make_host: MakeHost,
) -> None:
    host = make_host(["Fine."])
    host.servers = [make_quick()]
    async with host.serve():
        await host.request("initialize")
        request = {"subtype": "set_permission_mode", "mode": "plan"}
        host.send({"type": "control_request", "request_id": "change", "request": request})
        host.send_prompt("Work.")
        assert list(await list_servers(host)) == ["quick"]
        await host.wait_until(lambda: host.list_lines("result"))
    (result,) = host.list_lines("result")
    assert result["result"] == "Fine.", result
    assert host.list_lines("system", "init")[0]["permissionMode"] == "plan"


async def ask(host: SdkHost, question: dict[str, Any]) -> tuple[dict[str, Any], list[Line]]:
    """Let a tool ask the user; return what its server got, and the requests of mudroom."""
    host.servers = [make_quick(env={"ASK": json.dumps(question)})]
    async with host.serve():
        result = await host.ask("Ask.")
    requests = [line["request"] for line in host.list_lines("control_request")]
    return json.loads(result["result"]), requests


def answer_with_question(request: Request) -> Answer:
    steps = [
        call("mcp_find", query="ask"),
        call("mcp_call", tool="mcp__quick__ask", arguments={}),
    ]
    return [steps[request.turn]] if request.turn < 2 else request.results[-1].text


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        (FORM, {"message": "Which color?", "mode": "form", "requested_schema": COLOR}),
        (
            ADDRESS,
            {"message": "Log in.", "mode": "url", "url": "https://example.com/login"},
        ),
    ],
    ids=["form", "address"],
)
async def test_the_host_answers_the_question_of_a_server(
    question: dict[str, Any], fields: Line, make_host: MakeHost
) -> None:
    host = make_host(answer_with_question, mode="bypassPermissions", asks_host=True)
    content = {"color": "blue"} if question is FORM else None
    host.answers["elicitation"] = lambda _: {"action": "accept", "content": content}
    reply, requests = await ask(host, question)
    assert requests == [{"subtype": "elicitation", "mcp_server_name": "quick", **fields}]
    assert reply == {"action": "accept", **({"content": content} if content else {})}
    assert host.list_states()[-4:] == ["running", "requires_action", "running", "idle"]


def refuse(_: Line) -> Line:
    """Answer as the Python SDK does, which has no questions of servers."""
    raise ValueError("Unsupported control request subtype: elicitation")


@pytest.mark.parametrize("action", ["decline", "cancel", "none"])
async def test_a_question_without_an_answer_is_declined(action: str, make_host: MakeHost) -> None:
    host = make_host(answer_with_question, mode="bypassPermissions", asks_host=True)
    host.answers["elicitation"] = refuse if action == "none" else lambda _: {"action": action}
    reply, _ = await ask(host, FORM)
    assert reply == {"action": "decline"}
