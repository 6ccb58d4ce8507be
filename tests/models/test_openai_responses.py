"""Tests of the Responses wire: bodies and answers, compared with the official SDK."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import WIRE, ResponsesModel
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig
from mudroom._session.model_registry import ModelRegistry
from mudroom.testing import load_replay_model
from mudroom.testing.clock import FakeClock

from .wires import RESPONSES, make_tool

LOCAL_WIRE = f"{WIRE}:127.0.0.1:1"


TOOLS = (make_tool("read"), make_tool("self.emitvalue"))
CALL = ToolCallBlock("a1", "read", {"path": "x.py"})
RESULT = UserMessage((ToolResultBlock("a1", "read", "one\ntwo"),))
THOUGHT = ThinkingBlock("Look first.", "gAAAA-ciphertext")


def completed(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "model": "gpt-5-1", "output": items, **fields}
    return {"type": "response.completed", "response": response}


# --- requests


def test_the_whole_conversation_is_sent_and_nothing_is_stored() -> None:
    config = RequestConfig(system="Be brief.", tools=TOOLS, temperature=0.5, max_tokens=900)
    body = RESPONSES.build(user_message("Hello"), config=config)
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
    body = RESPONSES.build(user_message("Hello"), config=config, model="gpt-4o")
    assert (body["temperature"], body["top_p"]) == (0.5, 0.25)
    assert "include" not in body


def test_reasoning_of_the_same_server_goes_back_encrypted_and_in_its_place() -> None:
    answer = AssistantMessage((THOUGHT, CALL), wire=LOCAL_WIRE)
    items = RESPONSES.build(user_message("Go"), answer, RESULT)["input"]
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
    items = RESPONSES.build(user_message("Why?"), answer, user_message("Really?"))["input"]
    assert [item["type"] for item in items] == ["message"] * 3
    assert "phase" not in items[1]


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    answer = AssistantMessage((THOUGHT,), wire=LOCAL_WIRE)
    items = RESPONSES.build(user_message("Why?"), answer, user_message("Really?"))["input"]
    assert [item["type"] for item in items] == ["message", "message"]


def test_call_ids_of_other_servers_have_at_most_64_characters() -> None:
    # https://github.com/decolua/9router/issues/393
    calls = tuple(ToolCallBlock(f"call_{n}{'x' * 80}", "read", {}) for n in range(2))
    results = tuple(ToolResultBlock(call.id, "read", "x") for call in calls)
    body = RESPONSES.build(user_message("Go"), AssistantMessage(calls), UserMessage(results))
    ids = [item["call_id"] for item in body["input"] if "call_id" in item]
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2
    assert max(map(len, ids)) == 64


def test_the_phase_of_a_text_goes_back() -> None:
    answer = AssistantMessage((TextBlock("I look.", "commentary"), CALL), wire=LOCAL_WIRE)
    items = RESPONSES.build(user_message("Go"), answer, RESULT)["input"]
    assert items[1]["phase"] == "commentary"


def test_a_failed_result_without_text_says_so() -> None:
    failed = UserMessage((ToolResultBlock("a1", "read", "", error=True),))
    items = RESPONSES.build(user_message("Go"), AssistantMessage((CALL,)), failed)["input"]
    assert items[2]["output"] == "Error: (empty)"


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
    answer, _ = RESPONSES.read(
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
    assert (answer.model, answer.id, answer.wire) == ("gpt-5-1", "resp_1", LOCAL_WIRE)


def test_items_without_an_index_are_all_part_of_the_answer() -> None:
    # llama.cpp sends its items so.
    calls = [
        {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
        for number in range(3)
    ]
    items = [{"type": "response.output_item.done", "item": call} for call in calls]
    answer, _ = RESPONSES.read(*items, completed())
    assert [call.id for call in answer.tool_calls] == ["c0", "c1", "c2"]


def test_the_items_of_the_last_event_count_when_no_item_came_alone() -> None:
    answer, _ = RESPONSES.read(completed({"type": "message", "content": [{"text": "Hi."}]}))
    assert answer.text == "Hi."


def test_deltas_are_shown_while_they_come() -> None:
    _, chunks = RESPONSES.read(
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
    answer, _ = RESPONSES.read(completed({"type": "message", "content": [{"refusal": "No."}]}))
    assert (answer.text, answer.stop_reason) == ("No.", StopReason.REFUSAL)


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
    answer, _ = RESPONSES.read(
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
    answer, _ = RESPONSES.read(
        *({"type": "response.output_item.done", "item": item} for item in items),
        {"type": "response.completed", "response": {}},
    )
    assert answer.text == "Found."
    assert answer.usage.searches == 1
