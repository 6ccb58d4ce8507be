"""The control protocol: decisions of the host on tool calls, and tools that run in the host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mudroom.permissions.rules import Permissions
from mudroom.testing import Request, call

from .conftest import Line, MakeHost


async def test_the_host_decides_on_a_call_under_its_own_names(
    make_host: MakeHost, tmp_path: Path
) -> None:
    write = call("write", file_path="a.txt", content="mud")
    host = make_host([write, "Done."], asks_host=True)
    host.answers["can_use_tool"] = lambda request: {
        "behavior": "allow",
        "updatedInput": request["input"],
    }
    async with host.serve():
        await host.ask("Write.")
    (question,) = host.list_requests()
    assert question["tool_name"] == "Write"
    assert question["input"] == {"file_path": str(tmp_path / "a.txt"), "content": "mud"}
    assert question["tool_use_id"]
    assert "agent_id" not in question
    kinds = [suggestion["type"] for suggestion in question["permission_suggestions"]]
    assert kinds == ["addRules", "setMode"]
    assert (tmp_path / "a.txt").read_text() == "mud"
    states = ["running", "requires_action", "running", "idle"]
    assert host.list_states()[-4:] == states


def refuse(_: Line) -> Line:
    raise ValueError("no such server")


async def test_a_refusal_or_an_error_of_the_host_denies_the_call(
    make_host: MakeHost, tmp_path: Path
) -> None:
    script = [call("bash", command="touch x"), "Done.", call("bash", command="touch x"), "Done."]
    host = make_host([*script, call("bash", command="touch x"), "Next."], asks_host=True)
    refusal = {"behavior": "deny", "message": "Not today."}
    async with host.serve():
        host.answers["can_use_tool"] = lambda _: refusal
        denied = await host.ask("Run it.")
        host.answers["can_use_tool"] = refuse
        failed = await host.ask("Run it.")
        host.answers["can_use_tool"] = lambda _: {**refusal, "interrupt": True}
        stopped = await host.ask("Run it.")
        after = await host.ask("Go on.")
    for result in (denied, failed):
        assert result["permission_denials"][0]["tool_name"] == "Bash"
    assert "Not today." in host.list_results()[0] and "no such server" in host.list_results()[1]
    assert stopped["subtype"] == "error_during_execution"
    assert after["result"] == "Next."
    assert not (tmp_path / "x").exists()


async def test_rules_of_an_answer_hold_for_the_session(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(
        [call("bash", command="touch 1"), call("bash", command="touch 2"), "Done."], asks_host=True
    )
    rule = {"toolName": "Bash", "ruleContent": "touch:*"}
    update = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
    host.answers["can_use_tool"] = lambda _: {"behavior": "allow", "updatedPermissions": [update]}
    async with host.serve():
        await host.ask("Echo.")
    assert len(host.list_requests()) == 1
    assert sorted(path.name for path in tmp_path.glob("?")) == ["1", "2"]


async def test_a_wider_mode_holds_at_once_and_deny_rules_from_the_next_prompt(
    make_host: MakeHost, tmp_path: Path
) -> None:
    def answer(request: Request) -> Any:
        number = len(request.results)
        if number < 2:
            return call("write", file_path=f"{request.prompt[:1]}{number}.txt", content="")
        return "Done."

    host = make_host(answer, asks_host=True)
    deny = {"type": "addRules", "rules": [{"toolName": "Write"}], "behavior": "deny"}
    host.answers["can_use_tool"] = lambda _: {
        "behavior": "allow",
        "updatedPermissions": [{"type": "setMode", "mode": "acceptEdits"}, deny],
    }
    async with host.serve():
        await host.ask("a")
        await host.ask("b")
    assert len(host.list_requests()) == 1
    assert sorted(path.name for path in tmp_path.glob("*.txt")) == ["a0.txt", "a1.txt"]
    assert host.list_lines("system", "init")[1]["permissionMode"] == "acceptEdits"


async def test_children_ask_with_their_id_and_a_stopped_call_withdraws_its_question(
    make_host: MakeHost,
) -> None:
    def answer(request: Request) -> Any:
        if "task" in request.tools:
            return [call("task", prompt=f"Write {n}.", agent="general") for n in range(3)]
        return call("write", file_path="x.txt", content="")

    host = make_host(answer, asks_host=True)
    async with host.serve(initializes=True):
        host.send_prompt("Delegate.")
        await host.wait_until(lambda: len(host.list_lines("control_request")) == 3)
        await host.request("interrupt")
        await host.wait_for(lambda line: line["type"] == "result")
        await host.wait_until(lambda: len(host.list_lines("control_cancel_request")) == 3)
    asked = host.list_lines("control_request")
    assert sorted(line["request"]["agent_id"] for line in asked) == ["1.1.1", "1.1.2", "1.1.3"]
    withdrawn = {line["request_id"] for line in host.list_lines("control_cancel_request")}
    assert withdrawn == {line["request_id"] for line in asked}


async def test_questions_are_denied_when_the_host_closes_its_end(make_host: MakeHost) -> None:
    host = make_host([call("bash", command="touch x"), "Done."], asks_host=True)
    async with host.serve():
        host.send_prompt("Run it.")
        await host.wait_for(lambda line: line["type"] == "control_request")
        host.close()
        result = await host.wait_for(lambda line: line["type"] == "result")
    assert result["result"] == "Done."
    assert "closed its end" in host.list_results()[0]


class Calculator:
    """An in-process MCP server with two tools."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.tools = ["add", "fail"]

    def answer(self, request: Line) -> Line:
        message = request["message"]
        self.methods.append(message["method"])
        assert request["server_name"] == "calc"
        body: Line = {
            "jsonrpc": "2.0",
            "id": message.get("id"),
            "result": self.make_result(message),
        }
        if message["method"] == "tools/call" and message["params"]["name"] == "fail":
            body = {"jsonrpc": "2.0", "id": message["id"], "error": {"message": "out of order"}}
        return {"mcp_response": body}

    def make_result(self, message: Line) -> Line:
        match message["method"]:
            case "initialize":
                return {"protocolVersion": "2025-11-25", "serverInfo": {"name": "calc"}}
            case "tools/list":
                page = message["params"].get("cursor")
                names = self.tools[1:] if page else self.tools[:1]
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
                return {"tools": tools, **({} if page else {"nextCursor": "2"})}
            case "tools/call":
                numbers = message["params"]["arguments"]
                text = str(numbers.get("a", 0) + numbers.get("b", 0))
                return {"content": [{"type": "text", "text": text}]}
            case _:
                return {}


async def test_tools_of_the_host_work_for_the_prompt_and_for_children(
    make_host: MakeHost,
) -> None:
    def answer(request: Request) -> Any:
        if request.turn:
            return request.results[0].text if request.results else "Done."
        if "task" in request.tools:
            return [
                call("mcp__calc__add", a=15, b=27),
                call("mcp__calc__fail"),
                call("task", prompt="Add.", agent="adder"),
            ]
        assert request.tools == ("mcp__calc__add",)
        return call("mcp__calc__add", a=1, b=1)

    calculator = Calculator()
    host = make_host(answer)
    host.answers["mcp_message"] = calculator.answer
    adder = {"description": "Adds.", "prompt": "You add.", "tools": ["mcp__calc__add"]}
    async with host.serve():
        await host.request("initialize", sdkMcpServers=["calc"], agents={"adder": adder})
        result = await host.ask("Calculate.")
        status = await host.request("mcp_status")
    assert result["result"] == "42"
    texts = host.list_results()
    assert "42" in texts
    assert any("out of order" in text for text in texts)
    assert "2" in texts
    begin = ["initialize", "notifications/initialized", "tools/list", "tools/list"]
    assert calculator.methods[:4] == begin
    (server,) = status["response"]["mcpServers"]
    assert server["status"] == "connected"
    assert [tool["name"] for tool in server["tools"]] == ["add", "fail"]
    init = host.list_lines("system", "init")[0]
    assert "mcp__calc__add" in init["tools"]
    assert init["mcp_servers"] == [{"name": "calc", "status": "connected"}]


async def test_a_manifest_saves_the_handshake(make_host: MakeHost) -> None:
    calculator = Calculator()
    host = make_host([call("mcp__calc__add", a=2, b=3), "Done."])
    host.answers["mcp_message"] = calculator.answer
    manifest = {
        "initializeResult": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "calc"}},
        "toolsListResult": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    }
    async with host.serve():
        response = await host.request(
            "initialize", sdkMcpServers=["calc"], sdkMcpServerManifests={"calc": manifest}
        )
        await host.ask("Add.")
    assert response["response"]["sdk_mcp_manifests_parked"] == {"calc": "parked"}
    assert calculator.methods == ["tools/call"]
    assert host.list_results() == ["5"]


async def test_a_server_that_fails_is_reported_and_the_session_works(make_host: MakeHost) -> None:
    host = make_host(["Fine.", call("mcp__calc__add", a=1, b=1), "Done."])
    host.answers["mcp_message"] = refuse
    async with host.serve():
        await host.request("initialize", sdkMcpServers=["calc"])
        result = await host.ask("Work.")
        assert (await host.request("mcp_reconnect", serverName="calc"))["subtype"] == "error"
        host.answers["mcp_message"] = Calculator().answer
        assert (await host.request("mcp_reconnect", serverName="calc"))["subtype"] == "success"
        await host.ask("Add.")
    assert host.list_results() == ["2"]
    assert result["result"] == "Fine."
    assert host.list_lines("system", "init")[0]["mcp_servers"][0]["status"] == "failed"
    assert any("no such server" in notice for notice in host.notices)


async def test_calls_of_children_reach_the_tool_that_they_name(make_host: MakeHost) -> None:
    def answer(request: Request) -> Any:
        if "task" in request.tools:
            tasks = [call("task", prompt=f"{n}", agent="adder") for n in range(4)]
            return tasks if request.turn == 0 else "Done."
        assert request.tools == ("mcp__calc__add",)
        if request.turn == 0:
            base = int(request.prompt) * 5
            return [call("mcp__calc__add", a=base, b=n) for n in range(5)]
        return " ".join(result.text for result in request.results)

    calculator = Calculator()
    host = make_host(answer)
    host.answers["mcp_message"] = calculator.answer
    adder = {"description": "Adds.", "prompt": "You add.", "tools": ["mcp__calc__add"]}
    async with host.serve():
        await host.request("initialize", sdkMcpServers=["calc"], agents={"adder": adder})
        await host.ask("Delegate.")
    texts = [text for text in host.list_results() if text.isdigit()]
    assert sorted(map(int, texts)) == list(range(20))
    assert calculator.methods.count("tools/call") == 20


async def test_a_change_of_the_tools_counts_for_the_next_prompt(make_host: MakeHost) -> None:
    def answer(request: Request) -> str:
        return str([tool for tool in request.tools if tool.startswith("mcp__")])

    calculator = Calculator()
    host = make_host(answer)
    host.answers["mcp_message"] = calculator.answer
    message = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    async with host.serve():
        await host.request("initialize", sdkMcpServers=["calc"])
        first = await host.ask("List.")
        calculator.tools = ["add", "more"]
        await host.request("mcp_message", server_name="calc", message=message)
        second = await host.ask("List.")
        await host.request("mcp_toggle", serverName="calc", enabled=False)
        third = await host.ask("List.")
    assert first["result"] == "['mcp__calc__add', 'mcp__calc__fail']"
    assert second["result"] == "['mcp__calc__add', 'mcp__calc__more']"
    assert third["result"] == "[]"


async def test_changed_arguments_are_judged_again(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(
        [call("bash", command="touch wrong"), call("bash", command="touch wrong"), "Done."],
        asks_host=True,
    )
    host._permissions = Permissions.of(deny=["Bash(rm:*)"])
    host._permissions = replace(host._permissions, can_ask=True)
    commands = ["touch right", "rm right"]
    host.answers["can_use_tool"] = lambda _: {
        "behavior": "allow",
        "updatedInput": {"command": commands.pop(0)},
    }
    async with host.serve():
        await host.ask("Run it.")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["right"]
    assert "a rule says deny" in host.list_results()[1]


async def test_a_hook_of_the_host_blocks_a_call_of_a_child(
    make_host: MakeHost, tmp_path: Path
) -> None:
    def answer(request: Request) -> Any:
        if request.turn:
            return "Done."
        if "task" in request.tools:
            return call("task", prompt="Touch.", agent="general")
        return call("bash", command="touch made")

    host = make_host(answer, shows_hooks=True)
    host.answers["hook_callback"] = lambda _: {"decision": "block", "reason": "A hook said no."}
    matcher = {"matcher": "Bash", "hookCallbackIds": ["hook_0"]}
    async with host.serve():
        response = await host.request(
            "initialize", hooks={"PreToolUse": [matcher], "CwdChanged": [matcher]}
        )
        await host.ask("Delegate.")
    assert response["response"]["hooks_applied"] is True
    hook_input = host.list_requests()[0]["input"]
    assert hook_input["tool_name"] == "Bash"
    assert hook_input["tool_input"] == {"command": "touch made"}
    assert hook_input["agent_id"] == "1.1.1"
    assert "A hook said no." in host.list_results()[0]
    assert not (tmp_path / "made").exists()
    assert any("CwdChanged" in notice for notice in host.notices)
    (started,) = host.list_lines("system", "hook_started")
    (ended,) = host.list_lines("system", "hook_response")
    assert started["hook_id"] == ended["hook_id"]
    assert (ended["hook_event"], ended["outcome"]) == ("PreToolUse", "success")


async def test_a_hook_that_fails_or_never_answers_blocks_a_call_and_nothing_else(
    make_host: MakeHost, tmp_path: Path
) -> None:
    async def answer_never(request: Line) -> Line:
        if request["callback_id"] == "raises":
            raise ValueError("no such name")
        await asyncio.Event().wait()
        return {}

    def matcher(callback_id: str, **more: object) -> list[Line]:
        return [{"hookCallbackIds": [callback_id], "timeout": 0.05, **more}]

    for hooks, is_made in (
        ({"PreToolUse": matcher("raises")}, False),
        ({"PreToolUse": matcher("waits")}, False),
        ({"PreToolUse": matcher("raises", onFailure="continue")}, True),
        ({"PostToolUse": matcher("waits"), "UserPromptSubmit": matcher("waits")}, True),
    ):
        host = make_host([call("bash", command="touch made"), "Done."])
        host.answers["hook_callback"] = answer_never
        async with host.serve():
            await host.request("initialize", hooks=hooks)
            result = await host.ask("Run it.")
        assert result["result"] == "Done."
        assert (tmp_path / "made").exists() == is_made, hooks
        (tmp_path / "made").unlink(missing_ok=True)
