"""Tests of the Responses wire: bodies and answers, compared with the official SDK."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import openai
import pytest
from openai.types.responses import ResponseInputParam, ToolParam
from pydantic_ai import messages as pm
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from mudroom._adapters.models._http import HttpClient, SseParser, StreamError
from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import WIRE, ResponsesModel, ResponsesReader
from mudroom._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig, StreamChunk
from mudroom._session.model_registry import ModelRegistry
from mudroom.testing import load_replay_model
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import ModelServer
from mudroom.testing.wire_formats import WireAnswer, responses_stream

from .wires import SCHEMA, make_tool

LOCAL_WIRE = f"{WIRE}:127.0.0.1:1"
IMAGE = ImageBlock("image/png", b"\x89PNG of a duck", 640, 480)


TOOLS = (make_tool("read"), make_tool("self.emitvalue"))
CALL = ToolCallBlock("a1", "read", {"path": "x.py"})
RESULT = UserMessage((ToolResultBlock("a1", "read", "one\ntwo"),))
THOUGHT = ThinkingBlock("Look first.", "gAAAA-ciphertext")


def sent(
    *messages: Message,
    config: RequestConfig | None = None,
    model: str = "gpt-5",
    tools: bool = True,
    url: str = "http://127.0.0.1:1/v1",
) -> dict[str, Any]:
    """Return the body of a request."""
    adapter = ResponsesModel(model, http=HttpClient(clock=FakeClock()), key="k", base_url=url)
    conversation = adapter.start_conversation(config or RequestConfig(system="", tools=TOOLS))
    for message in messages:
        conversation.append(message)
    return json.loads(conversation.build_body(tools=tools))


def read_events(*events: dict[str, Any]) -> tuple[AssistantMessage, list[StreamChunk]]:
    reader = ResponsesReader("m", ToolNames(["self.emitvalue"]))
    chunks: list[StreamChunk] = []
    for event in events:
        chunks += reader.feed(json.dumps(event).encode())
    return reader.finish(), chunks


def completed(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "model": "gpt-5-1", "output": items, **fields}
    return {"type": "response.completed", "response": response}


# --- requests


def test_the_whole_conversation_is_sent_and_nothing_is_stored() -> None:
    config = RequestConfig(system="Be brief.", tools=TOOLS, temperature=0.5, max_tokens=900)
    body = sent(user_message("Hello"), config=config)
    assert body["store"] is False
    assert body["stream"] is True
    assert body["max_output_tokens"] == 900
    assert body["instructions"] == "Be brief."
    assert body["include"] == ["reasoning.encrypted_content"]
    assert "temperature" not in body
    assert [tool["name"] for tool in body["tools"]] == ["read", "self_emitvalue"]
    assert all(tool["strict"] is False for tool in body["tools"])
    content = [{"type": "input_text", "text": "Hello"}]
    assert body["input"] == [{"type": "message", "role": "user", "content": content}]


def test_a_model_without_reasoning_gets_sampling_and_no_request_for_reasoning() -> None:
    config = RequestConfig(system="", temperature=0.5, top_p=0.25)
    body = sent(user_message("Hello"), config=config, model="gpt-4o")
    assert (body["temperature"], body["top_p"]) == (0.5, 0.25)
    assert "include" not in body


def test_reasoning_of_the_same_server_goes_back_encrypted_and_in_its_place() -> None:
    answer = AssistantMessage((THOUGHT, CALL), wire=LOCAL_WIRE)
    items = sent(user_message("Go"), answer, RESULT)["input"]
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    summary = [{"type": "summary_text", "text": "Look first."}]
    ciphertext = "gAAAA-ciphertext"
    assert items[1] == {"type": "reasoning", "summary": summary, "encrypted_content": ciphertext}
    assert items[2]["call_id"] == items[3]["call_id"] == "a1"


@pytest.mark.parametrize("wire", ["anthropic", WIRE, "openai"])
def test_reasoning_of_another_server_is_left_out(wire: str) -> None:
    answer = AssistantMessage((THOUGHT, TextBlock("So.", "final_answer")), wire=wire)
    items = sent(user_message("Why?"), answer, user_message("Really?"))["input"]
    assert [item["type"] for item in items] == ["message"] * 3
    assert "phase" not in items[1]


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    answer = AssistantMessage((THOUGHT,), wire=LOCAL_WIRE)
    items = sent(user_message("Why?"), answer, user_message("Really?"))["input"]
    assert [item["type"] for item in items] == ["message", "message"]


def test_call_ids_of_other_servers_have_at_most_64_characters() -> None:
    # https://github.com/decolua/9router/issues/393
    calls = tuple(ToolCallBlock(f"call_{n}{'x' * 80}", "read", {}) for n in range(2))
    results = tuple(ToolResultBlock(call.id, "read", "x") for call in calls)
    body = sent(user_message("Go"), AssistantMessage(calls), UserMessage(results))
    ids = [item["call_id"] for item in body["input"] if "call_id" in item]
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2
    assert max(map(len, ids)) == 64


def test_the_phase_of_a_text_goes_back() -> None:
    answer = AssistantMessage((TextBlock("I look.", "commentary"), CALL), wire=LOCAL_WIRE)
    assert sent(user_message("Go"), answer, RESULT)["input"][1]["phase"] == "commentary"


def test_images_are_sent_in_prompts_and_in_results() -> None:
    url = "data:image/png;base64,iVBORyBvZiBhIGR1Y2s="
    looked = ToolResultBlock("a1", "read", "a duck", images=(IMAGE,))
    prompt = UserMessage((TextBlock("What is this?"), IMAGE))
    items = sent(prompt, AssistantMessage((CALL,)), UserMessage((looked,)))["input"]
    assert items[0]["content"][1] == {"type": "input_image", "image_url": url}
    assert items[2]["output"][1] == {"type": "input_image", "image_url": url}


def test_a_failed_result_without_text_says_so() -> None:
    failed = UserMessage((ToolResultBlock("a1", "read", "", error=True),))
    items = sent(user_message("Go"), AssistantMessage((CALL,)), failed)["input"]
    assert items[2]["output"] == "Error: (empty)"


CORPUS: dict[str, list[Message]] = {
    "a prompt": [user_message("Hello")],
    "a call and its result": [user_message("Go"), AssistantMessage((CALL,)), RESULT],
    "text, call and a failed result": [
        user_message("Go"),
        AssistantMessage((TextBlock("I look."), CALL)),
        UserMessage((ToolResultBlock("a1", "read", "Error: no such file", error=True),)),
    ],
    "a note beside a result": [
        user_message("Go"),
        AssistantMessage((CALL,)),
        UserMessage((*RESULT.content, TextBlock("Three turns are left."))),
    ],
    "reasoning": [
        user_message("Go"),
        AssistantMessage((THOUGHT, TextBlock("Done.")), wire=LOCAL_WIRE),
        user_message("Again"),
    ],
    "arguments that are no JSON": [
        user_message("Go"),
        AssistantMessage((ToolCallBlock("a1", "read", {}, malformed='{"path": "x'),)),
        RESULT,
    ],
}


def sdk_items(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation as a user of the official SDK writes it."""
    items: list[dict[str, Any]] = []
    for message in messages:
        for block in message.content:
            match block:
                case TextBlock():
                    role = "user" if isinstance(message, UserMessage) else "assistant"
                    kind = "input_text" if role == "user" else "output_text"
                    content = [{"type": kind, "text": block.text}]
                    items.append({"type": "message", "role": role, "content": content})
                case ToolCallBlock():
                    arguments = (
                        {"INVALID_JSON": block.malformed} if block.malformed else block.arguments
                    )
                    text = json.dumps(arguments, separators=(",", ":"))
                    fields = {"call_id": block.id, "name": block.name, "arguments": text}
                    items.append({"type": "function_call", **fields})
                case ToolResultBlock():
                    fields = {"call_id": block.call_id, "output": block.text}
                    items.append({"type": "function_call_output", **fields})
                case ThinkingBlock():
                    summary = [{"type": "summary_text", "text": block.text}]
                    fields = {"summary": summary, "encrypted_content": block.signature}
                    items.append({"type": "reasoning", **fields})
                case ImageBlock() | ProviderBlock():
                    raise AssertionError
    return items


@pytest.mark.parametrize("name", CORPUS)
async def test_our_body_equals_the_body_of_the_official_sdk(name: str) -> None:
    messages = CORPUS[name]
    config = RequestConfig(system="Be brief.", tools=TOOLS[:1], max_tokens=1000)
    tools = [
        {
            "type": "function",
            "name": "read",
            "description": "Does read.",
            "parameters": SCHEMA,
            "strict": False,
        }
    ]
    async with ModelServer(lambda _: "Done.") as server:
        base_url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(api_key="k", base_url=base_url, max_retries=0) as client:
            stream = await client.responses.create(
                model="gpt-5",
                input=cast("ResponseInputParam", sdk_items(messages)),
                instructions="Be brief.",
                tools=cast("list[ToolParam]", tools),
                max_output_tokens=1000,
                store=False,
                include=["reasoning.encrypted_content"],
                stream=True,
            )
            async for _ in stream:
                pass
        assert sent(*messages, config=config) == server.requests[0].json


# --- answers


def test_the_answer_consists_of_the_finished_items() -> None:
    reasoning = {
        "type": "reasoning",
        "summary": [{"text": "One."}, {"text": "Two."}],
        "encrypted_content": "gAAA",
    }
    text = {"type": "message", "phase": "commentary", "content": [{"text": "I look."}]}
    call = {"type": "function_call", "call_id": "c", "name": "self_emitvalue", "arguments": "{}"}
    ignored = {"type": "file_search_call", "id": "fs_1"}
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    answer, _ = read_events(
        {"type": "response.created", "response": {"id": "resp_1"}},
        *(
            {"type": "response.output_item.done", "output_index": index, "item": item}
            for index, item in enumerate((reasoning, ignored, text, call))
        ),
        completed(usage=usage),
    )
    assert answer.content == (
        ThinkingBlock("One.\n\nTwo.", "gAAA"),
        TextBlock("I look.", "commentary"),
        ToolCallBlock("c", "self.emitvalue", {}),
    )
    assert answer.stop_reason is StopReason.CALLS
    assert answer.usage == Usage(100, 20, 64, 0, 5)
    assert (answer.model, answer.id, answer.wire) == ("gpt-5-1", "resp_1", WIRE)


def test_items_without_an_index_are_all_part_of_the_answer() -> None:
    # llama.cpp sends its items so.
    calls = [
        {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
        for number in range(3)
    ]
    items = [{"type": "response.output_item.done", "item": call} for call in calls]
    answer, _ = read_events(*items, completed())
    assert [call.id for call in answer.tool_calls] == ["c0", "c1", "c2"]


def test_the_items_of_the_last_event_count_when_no_item_came_alone() -> None:
    answer, _ = read_events(completed({"type": "message", "content": [{"text": "Hi."}]}))
    assert answer.text == "Hi."


def test_deltas_are_shown_while_they_come() -> None:
    _, chunks = read_events(
        {"type": "response.reasoning_summary_text.delta", "delta": "One."},
        {"type": "response.reasoning_summary_part.added", "summary_index": 1},
        {"type": "response.reasoning_summary_text.delta", "delta": "Two."},
        {"type": "response.output_text.delta", "delta": "Hi."},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        completed(),
    )
    assert [(chunk.kind, chunk.text) for chunk in chunks] == [
        ("thinking", "One."),
        ("thinking", "\n\n"),
        ("thinking", "Two."),
        ("text", "Hi."),
        ("call", "{}"),
    ]


def test_a_refusal_is_a_refusal() -> None:
    answer, _ = read_events(completed({"type": "message", "content": [{"refusal": "No."}]}))
    assert (answer.text, answer.stop_reason) == ("No.", StopReason.REFUSAL)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "no"}}, 429),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, 429),
        ({"type": "response.failed", "response": {"error": {"code": "server_error"}}}, 500),
        ({"type": "response.failed", "response": {}}, 500),
    ],
)
def test_an_error_in_the_stream_has_the_status_of_a_response(
    event: dict[str, Any], status: int
) -> None:
    with pytest.raises(StreamError) as error:
        read_events(event)
    assert error.value.status == status


ANSWER = WireAnswer(
    (
        TextBlock("Grüße, 世界 😀 " * 9),
        ToolCallBlock("a", "read", {"path": "世界"}),
        ToolCallBlock("b", "grep", {"deep": {"x": [None, True]}}),
    ),
    "m",
    "r1",
    Usage(100, 20, 64),
    StopReason.CALLS,
)


async def test_our_reader_agrees_with_the_official_sdk_and_pydantic_ai() -> None:
    sse = SseParser()
    reader = ResponsesReader("m", ToolNames(()))
    for event in sse.feed(b"".join(responses_stream(ANSWER))):
        reader.feed(event)
    ours = reader.finish()
    async with ModelServer(lambda _: ANSWER.blocks) as server:
        base_url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(api_key="k", base_url=base_url, max_retries=0) as client:
            async with client.responses.stream(model="m", input="Hi") as stream:
                theirs = await stream.get_final_response()
        provider = OpenAIProvider(api_key="k", base_url=base_url)
        model = OpenAIResponsesModel("m", provider=provider)
        prompt = pm.ModelRequest.user_text_prompt("Hi")
        async with model, model_request_stream(model, [prompt]) as parts:
            async for _ in parts:
                pass
    third = parts.get()
    calls = [(call.id, call.name, call.arguments) for call in ours.tool_calls]
    assert theirs.output_text == ours.text
    assert calls == [
        (item.call_id, item.name, json.loads(item.arguments))
        for item in theirs.output
        if item.type == "function_call"
    ]
    assert calls == [
        (part.tool_call_id, part.tool_name, part.args_as_dict())
        for part in third.parts
        if isinstance(part, pm.ToolCallPart)
    ]


# --- choice of the wire


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("openai:gpt-6.1-sol", "", ResponsesModel),
        ("openai:gpt-4o", "https://eu.api.openai.com/v1", ResponsesModel),
        ("openai:gpt-5", "https://me.openai.azure.com/openai/v1", ResponsesModel),
        ("openai:gpt-5", "https://gateway.ai.cloudflare.com/v1/a/g/openai", ResponsesModel),
        ("openai:gpt-5", "http://127.0.0.1:8000/v1", OpenAIModel),
        ("openai:gpt-5", "https://api.openai.com.example.org/v1", OpenAIModel),
        ("openai-chat:gpt-4o", "", OpenAIModel),
        ("openai-responses:gpt-5", "http://127.0.0.1:8000/v1", ResponsesModel),
    ],
)
def test_the_address_chooses_the_wire_of_openai(name: str, url: str, expected: type) -> None:
    environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url}
    assert type(ModelRegistry(environ, FakeClock(), load_replay_model).get_model(name)) is expected


def test_items_of_unknown_types_are_ignored_whatever_their_fields_hold() -> None:
    """On record: `image_generation_call` with `"action": "generate"`."""
    strange = {
        "type": "image_generation_call",
        "id": 7,
        "status": {"of": "it"},
        "action": "generate",
        "content": "text",
        "summary": 1.5,
        "name": ["x"],
        "arguments": {},
    }
    text = {"type": "output_text", "text": "Here it is."}
    message = {"type": "message", "role": "assistant", "content": [text]}
    answer, _ = read_events(
        {"type": "response.output_item.added", "output_index": 0, "item": strange},
        {"type": "response.output_item.done", "output_index": 0, "item": strange},
        {"type": "response.image_generation_call.partial_image", "message": {"a": 1}},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.completed", "response": {"output": [strange, message]}},
    )
    assert answer.text == "Here it is."


def test_fields_of_used_items_that_only_go_back_may_hold_anything() -> None:
    search = {"type": "web_search_call", "id": "w", "action": "search"}
    text = {"type": "output_text", "text": "Found.", "annotations": {"a": 1}}
    message = {"type": "message", "role": "assistant", "content": [text], "phase": {"of": 1}}
    items = [search, {"type": None}, {"type": ["message"]}, message]
    answer, _ = read_events(
        *({"type": "response.output_item.done", "item": item} for item in items),
        {"type": "response.completed", "response": {}},
    )
    assert answer.text == "Found."
    assert answer.usage.searches == 1


def test_the_output_of_the_last_event_counts_without_items_of_unknown_types() -> None:
    strange = {"type": "shell_call", "action": ["ls"], "content": 5}
    text = {"type": "output_text", "text": "Here it is."}
    message = {"type": "message", "role": "assistant", "content": [text]}
    answer, _ = read_events(
        {"type": "response.completed", "response": {"output": [strange, message]}}
    )
    assert answer.text == "Here it is."
