"""Repairs: the request that follows a refusal avoids what was refused, and so do all later ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import TextBlock, Tool, ToolCallBlock, ToolResult
from mudroom._adapters.models._wire import WireModel
from mudroom._core.messages import (
    AssistantMessage,
    ThinkingBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig, RetryNotice
from mudroom.errors import ModelError
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from .wires import OPENAI, WIRES, Wire, ask, pair_up, refuse

CALL = ToolCallBlock("c1", "read", {"path": "a.py"})


async def send(model: WireModel, *messages: Any, tools: tuple[Tool, ...] = ()) -> AssistantMessage:
    answer = (await ask(model, *messages, config=RequestConfig(system="", tools=tools)))[-1]
    assert isinstance(answer, AssistantMessage)
    return answer


FOREIGN = AssistantMessage((TextBlock("I read it."), CALL), wire="anthropic")
RESULT = UserMessage((ToolResultBlock("c1", "read", "text"),))


def find_call(request: ServerRequest) -> dict[str, Any]:
    (message,) = [each for each in request.messages if "tool_calls" in each]
    return message


@pytest.mark.parametrize(
    "text",
    [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at 2",
    ],
)
async def test_a_server_that_wants_reasoning_with_each_call_is_remembered(text: str) -> None:
    answers: list[ServerAnswer] = ["Again.", "Done.", refuse(text), refuse(text)]
    async with ModelServer(lambda _: answers.pop()) as server:
        model = OPENAI.make_model(base_url=server.url)
        assert (await send(model, user_message("Go."), FOREIGN, RESULT)).text == "Done."
        await send(model, user_message("Go."), FOREIGN, RESULT)
        await model.close()
    sent = [find_call(request).get("reasoning_content") for request in server.requests]
    assert sent == [None, "", " ", " "]


async def test_a_server_that_refuses_even_blank_reasoning_is_not_asked_for_ever() -> None:
    refusal = refuse("The `reasoning_content` in the thinking mode must be passed back.")
    async with ModelServer(lambda _: refusal) as server:
        model = OPENAI.make_model(base_url=server.url)
        with pytest.raises(ModelError, match="must be passed back"):
            await send(model, user_message("Go."), FOREIGN, RESULT)
        await model.close()
    assert server.request_count == 3


async def test_empty_reasoning_before_a_call_is_sent_back() -> None:
    """deepseek-v4-flash sends an empty field, and wants it back."""
    call = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": "{}"}}
    chunks = [
        {"choices": [{"delta": {"reasoning_content": "", "content": None}}]},
        {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]},
    ]
    stream = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    answers: list[ServerAnswer] = ["Done.", Fault(body=stream, content_type="text/event-stream")]
    async with ModelServer(lambda _: answers.pop()) as server:
        model = OPENAI.make_model(base_url=server.url)
        own = await send(model, user_message("Go."))
        assert ThinkingBlock("", "reasoning_content") in own.content
        await send(model, user_message("Go."), own, RESULT)
        await model.close()
    assert find_call(server.requests[-1])["reasoning_content"] == ""


@pytest.mark.parametrize("status", [400, 500])
async def test_messages_of_the_user_are_joined_for_a_template_that_alternates(status: int) -> None:
    text = "Conversation roles must alternate user/assistant/user/assistant/..."
    answers: list[ServerAnswer] = ["Again.", "Done.", refuse(text, status)]
    async with ModelServer(lambda _: answers.pop()) as server:
        model = OPENAI.make_model(base_url=server.url)
        prompts = (user_message("Go."), user_message("Go on."))
        assert (await send(model, *prompts)).text == "Done."
        await send(model, *prompts, FOREIGN, RESULT, user_message("More."))
        await model.close()
    roles = [[each["role"] for each in request.messages] for request in server.requests]
    assert roles == [["user", "user"], ["user"], ["user", "assistant", "tool"]]
    assert server.requests[1].messages[0]["content"] == "Go.\n\nGo on."
    assert server.requests[2].messages[-1]["content"] == "text\n\nMore."


async def test_the_system_prompt_joins_the_first_message_of_a_template_without_it() -> None:
    answers: list[ServerAnswer] = ["Done.", refuse("System role not supported", 500)]
    async with ModelServer(lambda _: answers.pop()) as server:
        model = OPENAI.make_model(base_url=server.url)
        config = RequestConfig(system="Be brief.")
        parts = await ask(model, user_message("Go."), config=config)
        await model.close()
    assert isinstance(parts[-1], AssistantMessage) and parts[-1].text == "Done."
    (message,) = server.requests[-1].messages
    assert message == {"role": "user", "content": "Be brief.\n\nGo."}


async def test_a_user_message_after_a_result_joins_it_after_the_refusal() -> None:
    answers: list[ServerAnswer] = ["Done.", refuse("Unexpected role 'user' after role 'tool'")]
    async with ModelServer(lambda _: answers.pop()) as server:
        model = OPENAI.make_model(base_url=server.url)
        await send(model, user_message("Go."), FOREIGN, RESULT, user_message("Go on."))
        await model.close()
    assert [each["role"] for each in server.requests[0].messages][-2:] == ["tool", "user"]
    *_, last = server.requests[1].messages
    assert (last["role"], last["content"]) == ("tool", "text\n\nGo on.")
    assert last["tool_call_id"].isalnum() and len(last["tool_call_id"]) == 9


def make_tool() -> Tool:
    async def run(_context: object, _arguments: object) -> ToolResult:
        return ToolResult("found")

    text = {"type": "string", "pattern": "(?!x).*", "format": "email"}
    properties = {"pattern": text, "format": {"type": "string", "enum": ["pattern"]}}
    schema = {
        "type": "object",
        "properties": {**properties, "all": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
        "$defs": {"t": text},
        "default": {"pattern": "p"},
    }
    return Tool(name="find", description="", parameters=schema, parse=dict, run=run)


@pytest.mark.parametrize(
    ("wire", "text"),
    pair_up(
        WIRES,
        "failed to parse grammar",
        "Failed to initialize samplers: failed to parse grammar",
        "Invalid schema for function 'find': regex lookaround is not supported",
        "tools.0.input_schema: unsupported format 'email'",
        "properties[x].format: only 'enum' and 'date-time' are supported for STRING type",
    ),
)
async def test_tools_are_sent_once_more_without_patterns(wire: Wire, text: str) -> None:
    refusal = refuse(text, 500 if text.startswith("Failed") else 400)
    answers: list[ServerAnswer] = ["Again.", "Done.", refusal]
    async with ModelServer(lambda _: answers.pop()) as server:
        model = wire.make_model(base_url=server.url)
        tools = (make_tool(),)
        assert (await send(model, user_message("Go."), tools=tools)).text == "Done."
        await send(model, user_message("Go."), tools=tools)
        await model.close()
    patterns = [request.body.count(b"(?!x)") for request in server.requests]
    assert patterns == [2, 0, 0]
    # A property of that name, a value and a default stay.
    for request in server.requests:
        assert b'"pattern":{' in request.body
        assert b'"enum":["pattern"]' in request.body
        assert b'"default":{"pattern":"p"}' in request.body


async def test_the_notice_names_the_tools_that_had_patterns() -> None:
    answers: list[ServerAnswer] = ["Done.", refuse("failed to parse grammar")]
    plain = replace(make_tool(), name="plain", parameters={"type": "object"})
    async with ModelServer(lambda _: answers.pop()) as server:
        model = OPENAI.make_model(base_url=server.url)
        config = RequestConfig(system="", tools=(plain, make_tool()))
        items = await ask(model, config=config)
        await model.close()
    (notice,) = [item for item in items if isinstance(item, RetryNotice)]
    assert "no patterns and formats, those of find had some" in notice.error


async def test_tools_that_are_refused_without_patterns_too_end_the_request() -> None:
    async with ModelServer(lambda _: refuse("failed to parse grammar")) as server:
        model = OPENAI.make_model(base_url=server.url)
        with pytest.raises(ModelError, match="failed to parse grammar"):
            await send(model, user_message("Go."), tools=(make_tool(),))
        await model.close()
    assert server.request_count == 2
