"""Tests of the Anthropic wire: request bodies byte for byte, and complete answers only."""

import json
from typing import Any

import pytest

from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._core.messages import (
    AssistantMessage,
    Message,
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
from mudroom.testing import wire_formats
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer, ServerRequest

from .wires import ANTHROPIC, make_tool

MARK = {"type": "ephemeral"}


READS = (("t1", "a.py"), ("t2", "b.py"))
OWN = ANTHROPIC.make_model().wire
CONVERSATION: list[Message] = [
    user_message("Read a.py and b.py."),
    AssistantMessage(
        (
            ThinkingBlock("Two files.", "sig=="),
            *(ToolCallBlock(i, "read", {"path": p}) for i, p in READS),
        ),
        wire=OWN,
    ),
    UserMessage(
        (
            ToolResultBlock("t1", "read", "1\tpass"),
            ToolResultBlock("t2", "read", "no such file", error=True),
            TextBlock("Go on."),
        )
    ),
    AssistantMessage((TextBlock("One is there."),), wire=OWN),
    user_message("Thanks."),
]
CONFIG = RequestConfig(system="Be brief.", tools=(make_tool("read"), make_tool("self.emitvalue")))


def test_a_request_as_it_is_sent() -> None:
    body = ANTHROPIC.build(*CONVERSATION[:3], config=CONFIG)
    assert list(body) == ["model", "max_tokens", "stream", "tools", "system", "messages"]
    assert body["stream"] is True
    assert [entry["name"] for entry in body["tools"]] == ["read", "self_emitvalue"]
    assert [entry.get("cache_control") for entry in body["tools"]] == [None, MARK]
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert body["messages"] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Read a.py and b.py.", "cache_control": MARK}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Two files.", "signature": "sig=="},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}},
                {"type": "tool_use", "id": "t2", "name": "read", "input": {"path": "b.py"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "1\tpass"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": "no such file",
                    "is_error": True,
                },
                {"type": "text", "text": "Go on.", "cache_control": MARK},
            ],
        },
    ]


def test_sealed_thinking_and_empty_texts() -> None:
    blocks = (ThinkingBlock("", redacted="cipher"), TextBlock(" \n"), TextBlock("Yes."))
    results = UserMessage((ToolResultBlock("t", "read", " \n"),))
    own, foreign, prompt = (
        message["content"]
        for message in ANTHROPIC.get_messages(
            AssistantMessage(blocks, wire=OWN), AssistantMessage(blocks, wire="openai"), results
        )
    )
    assert [block["type"] for block in own] == ["redacted_thinking", "text"]
    assert own[0]["data"] == "cipher"
    assert [block["text"] for block in foreign] == ["Yes."]
    assert "content" not in prompt[0]


def test_ids_and_names_of_other_wires_are_made_legal() -> None:
    call = AssistantMessage((ToolCallBlock("call|1", "self.emitvalue", {}),))
    result = UserMessage((ToolResultBlock("call|1", "", "ok"),))
    encoded = ANTHROPIC.build(user_message("x"), call, result, config=CONFIG)["messages"]
    assert (encoded[1]["content"][0]["id"], encoded[1]["content"][0]["name"]) == (
        "call_1",
        "self_emitvalue",
    )
    assert encoded[2]["content"][0]["tool_use_id"] == "call_1"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-sonnet-5-5", {}),
        ("claude-haiku-4-5", {"temperature": 0.5}),
        ("claude-opus-4-20250514", {"temperature": 0.5}),
        ("claude-3-5-haiku-20241022", {"temperature": 0.5, "top_p": 0.9}),
    ],
)
def test_only_the_sampling_a_model_accepts_is_sent(name: str, expected: dict[str, float]) -> None:
    body = ANTHROPIC.build(
        user_message("x"), config=RequestConfig(system="", temperature=0.5, top_p=0.9), model=name
    )
    assert {key: body[key] for key in ("temperature", "top_p") if key in body} == expected


@pytest.mark.parametrize(
    ("name", "maximum"),
    [
        ("claude-sonnet-5-5", 64_000),
        ("claude-sonnet-4-5-20250929", 32_000),
        ("claude-opus-4-1-20250805", 16_000),
        ("kimi-k2", 16_384),
        ("some-model", 8_192),
    ],
)
def test_max_tokens_is_always_sent(name: str, maximum: int) -> None:
    assert ANTHROPIC.build(user_message("x"), model=name)["max_tokens"] == maximum
    config = RequestConfig(system="", max_tokens=77)
    assert ANTHROPIC.build(config=config, model=name)["max_tokens"] == 77


def test_a_base_url_may_end_in_v1() -> None:
    for base in ("http://127.0.0.1:1", "http://127.0.0.1:1/", "http://127.0.0.1:1/v1"):
        assert (
            AnthropicModel("m", http=HttpClient(clock=FakeClock()), base_url=base).url
            == "http://127.0.0.1:1/v1/messages"
        )


ANSWER = (
    ThinkingBlock("Which file? 漢", "sig=="),
    ThinkingBlock("", redacted="cipher"),
    TextBlock("I read two files at once. é"),
    ToolCallBlock("toolu_1", "self_emitvalue", {"path": "a/é.py", "n": [1, None, {"x": True}]}),
    ToolCallBlock("toolu_2", "read", {}),
)
REPLY = wire_formats.WireAnswer(
    ANSWER, "claude-x", "msg_1", Usage(1000, 50, 700, 200), StopReason.CALLS
)
STREAM = b"".join(wire_formats.anthropic_stream(REPLY))


def test_blocks_without_an_index_are_all_part_of_the_answer() -> None:
    lines = STREAM.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith(b"data: "):
            event = json.loads(line.removeprefix(b"data: "))
            event.pop("index", None)
            lines[number] = b"data: %b\n" % json.dumps(event).encode()
    assert b'"index"' in STREAM
    assert ANTHROPIC.read_parts(b"".join(lines)) == ANTHROPIC.read_parts(STREAM)
    assert ANTHROPIC.read_parts(STREAM).content[:2] == ANSWER[:2]


def _encode_events(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


START = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}}
STOP = {"type": "message_stop"}


def _make_tool_events(
    call_id: str, *partial: str, arguments: dict[str, Any] | None = None, index: int = 0
) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call_id, "name": "read", "input": arguments or {}}
    deltas = ({"type": "input_json_delta", "partial_json": chunk} for chunk in partial)
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def test_text_and_arguments_in_the_block_start_are_used() -> None:
    block = {"type": "text", "text": "Hi."}
    text = {"type": "content_block_start", "index": 0, "content_block": block}
    events = (START, text, *_make_tool_events("t", arguments={"path": "a"}, index=1), STOP)
    content = ANTHROPIC.read(*events)[0].content
    assert content == (TextBlock("Hi."), ToolCallBlock("t", "read", {"path": "a"}))


def test_reasoning_tokens_are_counted() -> None:
    usage = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}}
    assert ANTHROPIC.read_parts(
        _encode_events(START, {"type": "message_delta", "delta": {}, "usage": usage}, STOP)
    ).usage == Usage(3, 9, reasoning_tokens=5)


def test_events_after_the_end_of_a_message_are_ignored() -> None:
    assert ANTHROPIC.read_parts(STREAM + STREAM) == ANTHROPIC.read_parts(STREAM)


class Pausing:
    """A server that pauses an answer this many times before it ends it."""

    def __init__(self, pauses: int) -> None:
        self.pauses = pauses
        self.count = 0

    def answer(self, request: ServerRequest) -> Fault:
        self.count += 1
        usage = Usage(100, 10)
        if self.count <= self.pauses:
            return Fault(f"Part {self.count}. ", stop_reason=StopReason.OTHER, usage=usage)
        return Fault("The end.", usage=usage)


async def ask_pausing(pauses: int) -> tuple[AssistantMessage, list[ServerRequest]]:
    script = Pausing(pauses)
    async with ModelServer(script.answer) as server:
        model = AnthropicModel("m", http=HttpClient(clock=FakeClock()), base_url=server.url)
        conversation = model.start_conversation(CONFIG)
        conversation.append(user_message("Search."))
        items = [item async for item in conversation.request_answer()]
        answer = items[-1]
        assert isinstance(answer, AssistantMessage)
        conversation.append(answer)
        conversation.append(user_message("Thanks."))
        _ = [item async for item in conversation.request_answer()]
        await model.close()
    return answer, server.requests


async def test_an_answer_that_the_api_paused_is_sent_back_and_continued() -> None:
    answer, requests = await ask_pausing(2)
    assert answer.text.split() == ["Part", "1.", "Part", "2.", "The", "end."]
    assert answer.stop_reason is StopReason.END
    assert answer.usage == Usage(300, 30)
    assert [len(request.messages) for request in requests] == [1, 2, 2, 3]
    assert requests[2].messages[1]["role"] == "assistant"
    texts = [block["text"] for block in requests[3].messages[1]["content"]]
    assert texts == ["Part 1. ", "Part 2. ", "The end."]


async def test_an_answer_that_is_paused_again_and_again_is_given_up() -> None:
    answer, requests = await ask_pausing(9)
    assert answer.stop_reason is StopReason.OTHER
    assert answer.provider_stop_reason == "pause_turn"
    assert len(requests) == 10
