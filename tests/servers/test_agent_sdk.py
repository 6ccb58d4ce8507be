"""The control protocol: prompts, states, requests, and hosts that do not follow the rules."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk._internal.message_parser import parse_message
from tests.waiting import is_alive, wait_until

from mudroom._adapters.integrations.plugins.spec import Plugin
from mudroom.errors import UsageError
from mudroom.testing import Request, call
from mudroom_hosts.file_prompts import FilePrompt

from .conftest import SUBTYPES, MakeHost
from .gate import Gate


async def test_initialize_describes_the_session(make_host: MakeHost) -> None:
    host = make_host([])
    async with host.serve():
        response = await host.request("initialize", hooks=None)
    assert response["subtype"] == "success"
    body = response["response"]
    assert [agent["name"] for agent in body["agents"]] == ["general", "explore", "plan"]
    assert body["claude_code_version"] >= "2.0.0"
    assert body["commands"] == []
    assert response["pending_permission_requests"] == []


async def test_each_prompt_has_its_init_line_its_result_and_its_states(
    make_host: MakeHost,
) -> None:
    host = make_host(["One.", "Two."])
    async with host.serve(initializes=True):
        first = await host.ask("Say one.", uuid="u1")
        second = await host.ask("Say two.", uuid="u2")
    assert (first["result"], second["result"]) == ("One.", "Two.")
    assert (first["user_message_uuids"], second["user_message_uuids"]) == (["u1"], ["u2"])
    assert host.list_states() == ["idle", "running", "idle", "running", "idle"]
    kinds = [line["type"] for line in host.lines if line.get("subtype") != "session_state_changed"]
    assert kinds == ["control_response", *["system", "assistant", "result"] * 2]
    assert [message.content[0] for message in host.model.requests[1].messages if message]
    assert len(host.model.requests[1].messages) == 3
    for line in host.lines:
        if line["type"] != "control_response":
            parse_message(line)


async def test_the_end_of_the_input_lets_the_prompts_finish(make_host: MakeHost) -> None:
    host = make_host(["One.", "Two."])
    async with host.serve():
        host.send_prompt([{"type": "text", "text": "First."}], priority="later")
        host.send_prompt("Second.", priority="later")
        host.close()
    assert [line["result"] for line in host.list_lines("result")] == ["One.", "Two."]


async def test_a_line_during_a_prompt_is_a_message_to_its_run(make_host: MakeHost) -> None:
    def answer(request: Request) -> Any:
        return str(request.messages[-1]) if request.turn else call("glob", pattern="*")

    gate = Gate(answer)
    host = make_host(gate)
    async with host.serve(initializes=True):
        host.send_prompt("Work.", uuid="u1")
        await gate.asked.wait()
        host.send_prompt("Also greet.", uuid="u2")
        await host.request("get_binary_version")  # the line before it is handled
        gate.opened.set()
        result = await host.wait_for(lambda line: line["type"] == "result")
    assert "Also greet." in result["result"]
    assert result["user_message_uuids"] == ["u1", "u2"]
    assert len(host.list_lines("result")) == 1


async def test_context_without_a_turn_comes_with_the_next_prompt(make_host: MakeHost) -> None:
    def answer(request: Request) -> str:
        return request.prompt

    host = make_host(answer)
    async with host.serve():
        host.send_prompt("The colour is red.", shouldQuery=False)
        result = await host.ask("Which colour?")
    assert result["result"] == "The colour is red."
    assert len(host.list_lines("result")) == 1


async def test_an_interrupt_ends_fifty_children_and_their_processes(
    make_host: MakeHost, tmp_path: Path
) -> None:
    waiting: set[str] = set()
    pids = tmp_path / "pids"

    async def answer(request: Request) -> Any:
        if request.prompt == "Ask." and request.turn:
            return "Here."
        if request.prompt == "Ask.":
            return [call("task", prompt=f"Wait {number}.") for number in range(50)]
        if request.prompt in ("Wait 1.", "Wait 2."):
            return call("bash", command=f"echo $$ >> {pids}; exec sleep 1000")
        waiting.add(request.prompt)
        return await asyncio.Event().wait()

    host = make_host(answer, mode="bypassPermissions")
    async with host.serve(initializes=True):
        host.send_prompt("Ask.")
        await wait_until(lambda: len(waiting) == 48 and pids.exists())
        await wait_until(lambda: len(pids.read_text().splitlines()) == 2)
        host.send_prompt("Later.", uuid="u9", priority="later")
        response = await host.request("interrupt", cancel_queued=True)
        first = await host.wait_for(lambda line: line["type"] == "result")
        assert [pid for pid in pids.read_text().split() if is_alive(int(pid))] == []
        second = await host.ask("Go on.")
    assert response["response"] == {"still_queued": [], "cancelled": ["u9"]}
    assert (first["subtype"], first["is_error"]) == ("error_during_execution", True)
    assert first["report"]["reason"] == "CANCELLED"
    started = [line["task_id"] for line in host.list_lines("system", "task_started")]
    ended = {
        line["task_id"]: line["status"] for line in host.list_lines("system", "task_notification")
    }
    assert (len(started), set(ended.values())) == (50, {"stopped"})
    assert sorted(started) == sorted(ended)
    assert second["result"] == "Here."
    assert host.list_states()[-1] == "idle"


async def test_a_mode_and_a_model_are_changed_between_prompts(make_host: MakeHost) -> None:
    host = make_host(["One.", "Two."])
    async with host.serve(initializes=True):
        assert (await host.request("set_permission_mode", mode="plan"))["subtype"] == "success"
        wrong_mode = await host.request("set_permission_mode", mode="wild")
        wrong_model = await host.request("set_model", model="nowhere:model")
        await host.ask("First.")
        assert (await host.request("set_model", model="offline"))["subtype"] == "success"
        await host.request("set_model", model=None)
        await host.ask("Second.")
    inits = host.list_lines("system", "init")
    assert "unknown permission mode 'wild'" in wrong_mode["error"]
    assert wrong_model["subtype"] == "error"
    assert [line["permissionMode"] for line in inits] == ["plan", "plan"]
    assert {line["session_id"] for line in inits} == {inits[0]["session_id"]}
    assert len(host.model.requests[1].messages) == 3


async def test_every_request_of_the_sdks_gets_an_answer(make_host: MakeHost) -> None:
    host = make_host([])
    async with host.serve(initializes=True):
        for subtype in SUBTYPES:
            response = await host.request(subtype)
            assert response["subtype"] in ("success", "error")
            assert response["subtype"] == "success" or response["error"]
            if subtype == "rewind_files":
                assert response["error"] == "not supported by mudroom: rewind_files"
    refused = [line for line in host.lines if "not supported by mudroom" in str(line)]
    assert len(refused) == 24


async def test_a_session_that_cannot_open_answers_initialize_with_the_reason(
    make_host: MakeHost,
) -> None:
    host = make_host([])
    host._folder = Path("/nonexistent")
    with pytest.raises(UsageError, match="no such directory"):
        async with host.serve():
            await host.request("initialize")
    assert "no such directory" in host.lines[0]["response"]["error"]


async def test_children_show_their_tools_and_their_text_only_on_request(
    make_host: MakeHost,
) -> None:
    def answer(request: Request) -> Any:
        if "task" not in request.tools:
            return "Child text." if request.turn else call("glob", pattern="*")
        return call("task", prompt="Look.", agent="explore") if request.turn == 0 else "Done."

    for shows, expected in ((False, {"tool_use"}), (True, {"tool_use", "text"})):
        host = make_host(answer)
        async with host.serve():
            await host.request("initialize", forwardSubagentText=shows)
            await host.ask("Delegate.")
        kinds = {
            block["type"]
            for line in host.list_lines("assistant")
            if line["parent_tool_use_id"]
            for block in line["message"]["content"]
        }
        assert kinds == expected
        names = [
            block["name"]
            for line in host.list_lines("assistant")
            for block in line["message"]["content"]
            if block["type"] == "tool_use"
        ]
        assert names == ["Agent", "Glob"]


async def test_partial_messages_are_events_of_the_messages_api(make_host: MakeHost) -> None:
    host = make_host(
        [["Let me look.", call("read", file_path="a.txt")], "x" * 100], streams_parts=True
    )
    async with host.serve():
        await host.ask("Work.")
    events = [line["event"] for line in host.list_lines("stream_event")]
    assert [event["type"] for event in events[:4]] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ]
    first_stop = [event["type"] for event in events].index("message_stop")
    parts = [event["delta"] for event in events[:first_stop] if "partial_json" in str(event)]
    assert json.loads(parts[0]["partial_json"])["file_path"].endswith("/a.txt")
    texts = [
        event["delta"]["text"]
        for event in events[first_stop:]
        if event["type"] == "content_block_delta"
    ]
    assert "".join(texts) == "x" * 100
    for line in host.list_lines("stream_event"):
        parse_message(line)


async def test_a_long_result_is_cut_so_that_the_sdk_can_read_it(make_host: MakeHost) -> None:
    host = make_host(["字" * 310_000])
    async with host.serve():
        result = await host.ask("Write much.")
    sent = [json.dumps(line, ensure_ascii=False).encode() for line in host.lines]
    assert max(map(len, sent)) < 1_000_000
    assert "characters left out" in result["result"]


async def test_a_host_may_send_garbage(make_host: MakeHost) -> None:
    host = make_host(["Fine."])
    async with host.serve():
        for data in (b"{", b"[]", b"\xff\xfe", b"", b"[" * 100_000):
            host.send_bytes(data)
        host.send({"type": "strange"})
        host.send({"type": "control_response", "response": {"request_id": "none"}})
        host.send({"type": "control_cancel_request", "request_id": "none"})
        host.send({"type": "keep_alive"})
        document = await host.ask([{"type": "document"}])
        nothing = await host.ask("")
        result = await host.ask("Work.")
    assert "no content of type document" in document["errors"][0]
    assert "no message with a content" in nothing["errors"][0]
    assert result["result"] == "Fine."
    assert sum(notice.startswith("a line on stdin") for notice in host.notices) == 5


async def test_a_schema_of_the_host_gives_structured_output_or_an_error(
    make_host: MakeHost,
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    emission = call("self.emitvalue", emit_variable_name="n", emit_variable_value=4)
    untidy = [f"I have done it, {number}." for number in range(6)]
    host = make_host([emission, "Done.", '{"n": "4"}', *untidy])
    async with host.serve():
        await host.request("initialize", jsonSchema=schema)
        emitted = await host.ask("Give four.")
        stated = await host.ask("Give four.")
        missing = await host.ask("Give five.")
    assert emitted["structured_output"] == stated["structured_output"] == {"n": 4}
    assert missing["subtype"] == "error_max_structured_output_retries"
    assert missing["is_error"] and "structured_output" not in missing


async def test_notes_of_mudroom_to_the_model_are_no_words_of_the_user(make_host: MakeHost) -> None:
    def answer(request: Request) -> Any:
        return str(request.messages) if request.turn else call("read", path="missing.txt")

    host = make_host(answer)
    async with host.serve():
        result = await host.ask("Read it.")
    assert "All tool calls of this turn failed." in result["result"]
    assert "All tool calls of this turn failed." not in str(host.list_lines("user"))
    assert len(host.list_lines("user")) == 1  # the result of the call


async def test_prompts_of_files_are_commands(make_host: MakeHost) -> None:
    gate = Gate(lambda request: str(request.messages[-1]))
    host = make_host(gate)
    fields: dict[str, Any] = {"description": "fix it", "find_problem": lambda: "the file is empty"}
    host.prompts = [
        FilePrompt(name="fix", hint="[thing]", format_prompt=lambda it: f"Fix {it}!", **fields),
        FilePrompt(name="bare", format_prompt=lambda _: "", **fields),
    ]
    host.plugins = [Plugin(id="x", name="x", root="/plugins/x", origin="--plugin-dir")]
    async with host.serve():
        described = (await host.request("initialize"))["response"]
        host.send_prompt("First.")
        await gate.asked.wait()
        host.send_prompt("/fix the door")
        await host.request("list_models")  # the line is read before this request
        gate.opened.set()
        fixed = await host.wait_for(lambda line: "Fix the door!" in str(line.get("result")))
        empty = await host.ask("/bare")
        other = await host.ask("/tmp is full")
    assert described["commands"] == [
        {"name": "fix", "description": "fix it", "argumentHint": "[thing]"},
        {"name": "bare", "description": "fix it", "argumentHint": ""},
    ]
    init = next(line for line in host.list_lines("system") if line["subtype"] == "init")
    assert init["slash_commands"] == ["fix", "bare"]
    assert init["plugins"] == [{"name": "x", "path": "/plugins/x"}]
    assert not fixed["is_error"]
    assert empty["is_error"] and "/bare has no prompt: the file is empty" in str(empty)
    assert "/tmp is full" in other["result"]
