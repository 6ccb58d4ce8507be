"""MCP servers outside the host: their states, restarts, and their questions to the user."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from tests.integrations.mcp_servers.servers import make_quick

from mudroom import ServerSpec
from mudroom._adapters.models.scripted import Answer, Request, call

from .conftest import Line, MakeHost, SdkHost
from .gate import Gate
from .test_agent_sdk_tools import Calculator

COLOR = {
    "type": "object",
    "properties": {"color": {"type": "string"}},
    "required": ["color"],
}
FORM: Line = {"mode": "form", "message": "Which color?", "requestedSchema": COLOR}
ADDRESS: Line = {
    "mode": "url",
    "message": "Log in.",
    "url": "https://example.com/login",
    "elicitationId": "e1",
}
BROKEN = ServerSpec(
    name="broken",
    origin="test",
    scope="project",
    command=sys.executable,
    args=("-c", "raise SystemExit('no such port')"),
)
FIND = call("mcp_find", query="pid")
USE = call("mcp_call", tool="mcp__quick__pid", arguments={})
QUICK: Line = {"command": make_quick().command, "args": list(make_quick().args)}
"""A server in the form of `.mcp.json`."""


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


async def list_servers(host: SdkHost) -> dict[str, Line]:
    response = await host.request("mcp_status")
    return {server["name"]: server for server in response["response"]["mcpServers"]}


async def test_the_states_of_servers_are_those_of_now_and_a_host_starts_them_again(
    make_host: MakeHost,
) -> None:
    host = make_host([[FIND], [USE], "Done.", [USE], "Done."])
    host.servers = [make_quick(), BROKEN]
    async with host.serve(initializes=True):
        before = await list_servers(host)
        await host.ask("Use it.")
        after = await list_servers(host)
        again, failed, unknown = [
            await host.request("mcp_reconnect", serverName=name)
            for name in ("quick", "broken", "quack")
        ]
        states = {name: entry["status"] for name, entry in (await list_servers(host)).items()}
        await host.ask("Use it.")
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
    assert again["subtype"] == "success", again
    assert "no such port" in failed["error"]
    assert "quick" in unknown["error"]
    assert states == {"quick": "connected", "broken": "failed"}
    _, first, second = host.list_results()
    assert first.isdigit() and second.isdigit() and first != second
    first, second = host.list_lines("system", "init")
    assert [server["status"] for server in first["mcp_servers"]] == ["pending", "pending"]
    assert second["mcp_servers"] == [
        {"name": "quick", "status": "connected"},
        {"name": "broken", "status": "failed"},
    ]


async def test_a_request_during_a_change_waits_until_the_session_is_open(
    make_host: MakeHost,
) -> None:
    host = make_host(["Fine."])
    host.servers = [make_quick()]
    async with host.serve(initializes=True):
        request = {"subtype": "set_permission_mode", "mode": "plan"}
        host.send({"type": "control_request", "request_id": "change", "request": request})
        host.send_prompt("Work.")
        assert list(await list_servers(host)) == ["quick"]
        await host.wait_until(lambda: host.list_lines("result"))
    (result,) = host.list_lines("result")
    assert result["result"] == "Fine.", result
    assert host.list_lines("system", "init")[0]["permissionMode"] == "plan"


async def test_a_host_replaces_its_servers(make_host: MakeHost) -> None:
    def answer(request: Request) -> Answer:
        if request.turn or "mcp__calc__add" not in request.tools:
            return "Done."
        return [FIND, call("mcp__calc__add", a=1, b=2)]

    host = make_host(answer)
    host.servers = [make_quick("flag")]
    host.answers["mcp_message"] = Calculator().answer
    async with host.serve(), await asyncio.start_server(refuse, "127.0.0.1", 0) as web:
        url = f"http://127.0.0.1:{web.sockets[0].getsockname()[1]}/mcp"
        opened = await host.request("initialize", mcpServers={"early": QUICK})
        servers: Line = {
            "calc": {"type": "sdk", "name": "calc"},
            "quick": QUICK,
            "broken": {"command": BROKEN.command, "args": list(BROKEN.args)},
            "wrong": {"args": 3},
            "web": {"type": "http", "url": url},
        }
        first = (await host.request("mcp_set_servers", servers=servers))["response"]
        states = {name: entry["status"] for name, entry in (await list_servers(host)).items()}
        await host.ask("Add.")
        again = (await host.request("mcp_set_servers", servers=servers))["response"]
        servers = {"flag": {**servers["quick"], "env": {"A": "b"}}}
        second = (await host.request("mcp_set_servers", servers=servers))["response"]
        third = (await host.request("mcp_set_servers", servers={}))["response"]
        last = list(await list_servers(host))
        await host.ask("Add.")
    assert first["added"] == ["calc", "quick", "broken", "wrong", "web"]
    assert first["removed"] == []
    assert sorted(first["errors"]) == ["broken", "web", "wrong"]
    assert "no such port" in first["errors"]["broken"]
    assert "mudroom mcp login web" in first["errors"]["web"]
    assert states == {
        "calc": "connected",
        "early": "pending",
        "flag": "pending",
        "quick": "connected",
        "broken": "failed",
        "web": "needs-auth",
    }
    results = [line["message"]["content"][0]["content"] for line in host.list_lines("user")]
    assert [result for result in results if result == "3"] == ["3"]
    assert any("mcp__quick__pid" in result for result in results)
    assert opened["response"]["mcp_servers_applied"] is True
    assert (again["added"], again["removed"]) == ([], [])
    assert second == {
        "added": ["flag"],
        "removed": ["calc", "quick", "broken", "wrong", "web"],
        "errors": {},
    }
    assert third == {"added": [], "removed": ["flag"], "errors": {}}
    assert last == ["early"]


async def test_servers_that_are_set_during_a_prompt_count_for_the_next(
    make_host: MakeHost,
) -> None:
    names = ("mcp_find", "mcp__calc__add")
    gate = Gate(lambda request: str([name for name in names if name in request.tools]))
    host = make_host(gate)
    host.answers["mcp_message"] = Calculator().answer
    servers = {"quick": QUICK, "calc": {"type": "sdk", "name": "calc"}}
    async with host.serve(initializes=True):
        host.send_prompt("Work.")
        await gate.asked.wait()
        response = await host.request("mcp_set_servers", servers=servers)
        off = [await host.request("mcp_toggle", serverName=name, enabled=False) for name in servers]
        states = await list_servers(host)
        await host.request("mcp_toggle", serverName="calc", enabled=True)
        gate.opened.set()
        await host.wait_until(lambda: host.list_lines("result"))
        second = await host.ask("Again.")
    assert response["response"] == {"added": ["quick", "calc"], "removed": [], "errors": {}}
    assert [each["subtype"] for each in off] == ["success", "success"]
    assert states == {}
    assert host.list_lines("result")[0]["result"] == "[]"
    assert second["result"] == "['mcp__calc__add']"


async def test_a_change_that_fails_leaves_the_servers_of_the_host(make_host: MakeHost) -> None:
    gate = Gate()
    host = make_host(gate)
    host.answers["mcp_message"] = Calculator().answer
    async with host.serve():
        await host.request("initialize", sdkMcpServers=["calc"])
        host.send_prompt("Work.")
        await gate.asked.wait()
        await host.request("mcp_set_servers", servers={})
        await host.request("set_model", model="nowhere/none")
        gate.opened.set()
        await host.wait_until(lambda: host.list_lines("result"))
        failed = await host.ask("Again.")
        states = await list_servers(host)
    assert failed["is_error"]
    assert list(states) == ["calc"]


async def test_a_host_turns_a_server_off_and_on(make_host: MakeHost) -> None:
    def answer(request: Request) -> Answer:
        return str("mcp_find" in request.tools)

    host = make_host(answer)
    host.servers = [make_quick()]
    async with host.serve(initializes=True):
        off = await host.request("mcp_toggle", serverName="quick", enabled=False)
        states = await list_servers(host)
        first = await host.ask("Look.")
        await host.request("mcp_toggle", serverName="quick", enabled=True)
        second = await host.ask("Look.")
        unknown = await host.request("mcp_toggle", serverName="quack", enabled=False)
    assert off["subtype"] == "success"
    assert states == {"quick": {"name": "quick", "status": "disabled", "scope": "dynamic"}}
    assert (first["result"], second["result"]) == ("False", "True")
    assert "quick" in unknown["error"]


def answer_with_question(request: Request) -> Answer:
    if request.turn == 0:
        return call("mcp_find", query="ask")
    if request.turn == 1:
        return call("mcp_call", tool="mcp__quick__ask", arguments={})
    return request.results[-1].text if request.results else call("mcp__quick__ask")


def raise_error(_: Line) -> Line:
    """Answer as the Python SDK does, which has no questions of servers."""
    raise ValueError("Unsupported control request subtype: elicitation")


DECLINE: Line = {"action": "decline"}


@pytest.mark.parametrize(
    ("question", "fields", "answers"),
    [
        (
            FORM,
            {"message": "Which color?", "mode": "form", "requested_schema": COLOR},
            [{"action": "accept", "content": {"color": "blue"}}, DECLINE, {"action": "cancel"}],
        ),
        (
            ADDRESS,
            {"message": "Log in.", "mode": "url", "url": "https://example.com/login"},
            [{"action": "accept"}, raise_error],
        ),
    ],
)
async def test_the_host_answers_questions_of_servers_and_others_are_declined(
    make_host: MakeHost, question: Line, fields: Line, answers: list[Any]
) -> None:
    host = make_host(answer_with_question, mode="bypassPermissions", asks_host=True)
    host.servers = [make_quick(env={"ASK": json.dumps(question)})]
    async with host.serve():
        for answer in answers:
            host.answers["elicitation"] = answer if callable(answer) else lambda _: answer  # noqa: B023
            result = await host.ask("Ask.")
            is_accepted = not callable(answer) and answer["action"] == "accept"
            assert json.loads(result["result"]) == (answer if is_accepted else DECLINE)
    asked = {"subtype": "elicitation", "mcp_server_name": "quick", **fields}
    assert host.list_requests() == [asked] * len(answers)
    assert host.list_states()[-4:] == ["running", "requires_action", "running", "idle"]
