"""Tests of the OpenAI wire: request bodies and answers, also of servers that resemble OpenAI."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom._adapters.models._http import StreamCut, StreamError
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
from mudroom._core.ports import RequestConfig, StreamChunk

from .wires import OPENAI


def make_delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "model": "m-1",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def make_call_part(
    arguments: object = None,
    *,
    index: int | None = None,
    id: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    fields = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in fields.items() if value is not None}


DONE = b"[DONE]"


def test_results_become_tool_messages_before_the_text() -> None:
    message = UserMessage(
        (
            TextBlock("Go on."),
            ToolResultBlock("1", "read", "one"),
            ToolResultBlock("2", "read", "no such file", error=True),
            ToolResultBlock("3", "read", ""),
            ToolResultBlock("4", "read", "Error: none", error=True),
        )
    )
    assert OPENAI.build(
        message,
    )["messages"] == [
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "Error: no such file"},
        {"role": "tool", "tool_call_id": "3", "content": "(empty)"},
        {"role": "tool", "tool_call_id": "4", "content": "Error: none"},
        {"role": "user", "content": "Go on."},
    ]


def test_a_strict_server_gets_no_field_it_refuses() -> None:
    message = UserMessage(
        (
            ToolResultBlock("1", "read", "one"),
            ToolResultBlock("2", "read", "two"),
            TextBlock("Go on."),
        )
    )
    body = OPENAI.build(message, base_url="https://api.mistral.ai/v1")
    assert "stream_options" not in body
    assert [(entry["role"], entry["content"]) for entry in body["messages"]] == [
        ("tool", "one"),
        ("tool", "two\n\nGo on."),
    ]


@pytest.mark.parametrize(
    ("model", "limit", "sampled"),
    [
        ("gpt-4o", 16_384, True),
        ("gpt-5-mini", 32_000, False),
        ("gpt-6.1-sol", 32_000, False),
        ("o3", 32_000, False),
        ("gpt-4", 2_048, True),
    ],
)
def test_openai_itself_gets_its_own_limit_and_sampling(
    model: str, limit: int, sampled: bool
) -> None:
    body = OPENAI.build(
        user_message("x"),
        model=model,
        base_url="https://api.openai.com/v1",
        config=RequestConfig(system="", temperature=0.5, top_p=0.9),
    )
    assert body["max_completion_tokens"] == limit
    assert ("temperature" in body) is ("top_p" in body) is sampled
    assert "max_tokens" not in body


def test_other_servers_get_max_tokens() -> None:
    body = OPENAI.build(
        user_message("x"), config=RequestConfig(system="", temperature=0.5, max_tokens=77)
    )
    assert (body["max_tokens"], body["temperature"]) == (77, 0.5)
    assert "max_completion_tokens" not in body


def test_fragments_of_parallel_calls_are_joined_by_index() -> None:
    answer, _ = OPENAI.read(
        make_delta(tool_calls=[make_call_part("", index=0, id="a", name="read")]),
        make_delta(tool_calls=[make_call_part('{"p"', index=0)]),
        make_delta(tool_calls=[make_call_part("", index=1, id="b", name="grep")]),
        make_delta(tool_calls=[make_call_part(":1}", index=0), make_call_part('{"q":2}', index=1)]),
        make_delta("tool_calls"),
        DONE,
    )
    assert answer.tool_calls == (
        ToolCallBlock("a", "read", {"p": 1}),
        ToolCallBlock("b", "grep", {"q": 2}),
    )
    assert answer.stop_reason is StopReason.CALLS


@pytest.mark.parametrize("index", [None, 0])
def test_whole_calls_without_distinct_indexes_stay_separate(index: int | None) -> None:
    calls = [
        make_call_part('{"p":1}', index=index, id="a", name="read"),
        make_call_part('{"p":2}', index=index, id="b", name="read"),
    ]
    answer, _ = OPENAI.read(make_delta("stop", tool_calls=calls))
    assert answer.tool_calls == (
        ToolCallBlock("a", "read", {"p": 1}),
        ToolCallBlock("b", "read", {"p": 2}),
    )
    assert answer.stop_reason is StopReason.CALLS


def test_calls_without_ids_get_unique_ones() -> None:
    nameless = make_delta(
        tool_calls=[make_call_part("{}", name="read"), make_call_part({"p": 1}, name="read")]
    )
    same = [
        make_delta(tool_calls=[make_call_part("{}", index=index, id="x", name="read")])
        for index in (7, 8)
    ]
    answer, _ = OPENAI.read(nameless, *same, DONE)
    assert len({call.id for call in answer.tool_calls}) == 4
    assert all(call.id for call in answer.tool_calls)
    assert answer.tool_calls[1].arguments == {"p": 1}


def test_lone_surrogates_are_replaced_and_split_pairs_are_joined() -> None:
    torn = [
        b'{"choices":[{"delta":{"content":"%b"}}]}' % half
        for half in (rb"\ud83d", rb"\ude00 \ud800")
    ]
    arguments = (
        b'{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f",'
        b'"arguments":"{\\"p\\":\\"\\\\ud800\\"}"}}]}}]}'
    )
    answer, _ = OPENAI.read(*torn, arguments, make_delta("stop"))
    assert answer.text == "😀 \ufffd"
    assert answer.tool_calls[0].arguments == {"p": "\ufffd"}


@pytest.mark.parametrize(
    ("key", "seal"), [("reasoning_content", "reasoning_content"), ("reasoning", "")]
)
def test_reasoning_is_read_under_both_field_names(key: str, seal: str) -> None:
    answer, chunks = OPENAI.read(make_delta(**{key: "hm"}), make_delta("stop", content="yes"))
    assert answer.content == (ThinkingBlock("hm", seal), TextBlock("yes"))
    assert chunks == [StreamChunk("thinking", "hm"), StreamChunk("text", "yes")]


def test_content_as_a_list_of_items_is_read() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    assert OPENAI.read(make_delta("stop", content=parts))[0].content == (
        ThinkingBlock("hm"),
        TextBlock("yes"),
    )


def test_an_answer_needs_a_finish_reason_or_done() -> None:
    assert OPENAI.read(make_delta("stop", content="a"))[0].text == "a"
    assert OPENAI.read(make_delta(content="a"), DONE)[0].text == "a"
    for chunks in [(), (make_delta(content="a"),), (DONE,)]:
        with pytest.raises(StreamCut):
            OPENAI.read(*chunks)


def test_a_refusal_is_read_as_text_with_its_stop_reason() -> None:
    answer, _ = OPENAI.read(make_delta(refusal="I won't."), make_delta("stop"))
    assert (answer.text, answer.stop_reason) == ("I won't.", StopReason.REFUSAL)


def test_a_finish_reason_of_error_is_an_error() -> None:
    with pytest.raises(StreamError):
        OPENAI.read(make_delta("error", content="half"))


# --- reasoning with signatures, and ids of other providers


def test_sealed_reasoning_details_go_back_unchanged_to_their_server() -> None:
    text = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    sealed = {"type": "reasoning.encrypted", "data": "EjQK", "id": "c1", "index": 1}
    call_delta = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": "{}"}}
    answer, _ = OPENAI.read(
        make_delta(reasoning="Look ", reasoning_details=[{**text, "text": "Look "}]),
        make_delta(reasoning="first.", reasoning_details=[{**text, "text": "first."}]),
        make_delta(reasoning_details=[{**text, "signature": "c2ln"}]),
        make_delta(reasoning_details=[sealed]),
        make_delta("tool_calls", tool_calls=[call_delta]),
    )
    assert isinstance(answer.content[0], ThinkingBlock)
    assert answer.content[0].text == "Look first."
    entry = OPENAI.build(user_message("Go"), replace(answer, wire="openai:127.0.0.1:1"))[
        "messages"
    ][-1]
    details = [{**text, "text": "Look first.", "signature": "c2ln"}, sealed]
    assert entry["reasoning_details"] == details
    foreign = OPENAI.build(user_message("Go"), replace(answer, wire="openai:openrouter.ai"))
    assert "reasoning_details" not in foreign["messages"][-1]


def test_reasoning_details_without_a_seal_stay_here() -> None:
    plain = {"type": "reasoning.text", "format": "unknown", "index": 0, "text": "Hm."}
    answer, _ = OPENAI.read(
        make_delta("stop", content="So.", reasoning="Hm.", reasoning_details=[plain])
    )
    entry = OPENAI.build(user_message("Go"), replace(answer, wire="openai:127.0.0.1:1"))[
        "messages"
    ][-1]
    assert set(entry) == {"role", "content"}


def encode_ids(
    calls: tuple[ToolCallBlock, ...], model: str, url: str
) -> tuple[list[str], list[str]]:
    """Return the ids of calls of another wire, and those of their results, as they are sent."""
    results = tuple(ToolResultBlock(call.id, "read", "x") for call in calls)
    messages = OPENAI.build(
        user_message("Go"),
        AssistantMessage(calls, wire="anthropic"),
        UserMessage(results),
        model=model,
        base_url=url,
    )["messages"]
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    return ids, [m["tool_call_id"] for m in messages if m["role"] == "tool"]


@pytest.mark.parametrize(
    ("model", "length"),
    [("openai/gpt-4o-mini", 40), ("gpt-5.5", 40), ("o4-mini", 40), ("openai/gpt-oss-120b", 85)],
)
def test_models_of_openai_get_ids_of_at_most_40_characters(model: str, length: int) -> None:
    # https://github.com/vercel/ai/issues/5171
    calls = tuple(ToolCallBlock(f"call_{'x' * 79}{n}", "read", {}) for n in range(2))
    ids, result_ids = encode_ids(calls, model, "https://openrouter.ai/api/v1")
    assert [len(call_id) for call_id in ids] == [length] * 2
    assert len(set(ids)) == 2
    assert result_ids == ids


@pytest.mark.parametrize(
    ("model", "url"),
    [
        ("m", "https://api.mistral.ai/v1"),
        ("mistral-large-latest", "https://me.services.ai.azure.com/models"),
        ("mistralai/Ministral-8B-Instruct-2410", "http://127.0.0.1:8000/v1"),
        ("mixtral:8x7b", "http://127.0.0.1:11434/v1"),
    ],
)
def test_mistral_gets_ids_of_nine_letters_or_digits(model: str, url: str) -> None:
    calls = (ToolCallBlock("toolu_01ABC", "read", {}), ToolCallBlock("abcDEF123", "read", {}))
    ids, result_ids = encode_ids(calls, model, url)
    assert all(re.fullmatch("[A-Za-z0-9]{9}", call_id) for call_id in ids)
    assert ids[1] == "abcDEF123"
    assert result_ids == ids


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 17,
                "total_tokens": 137,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(100, 37, reasoning_tokens=20),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 7, "cached_tokens": 5}, Usage(9, 7, 5)),
    ],
    ids=["reasoning only in the total", "cached tokens at the top"],
)
def test_all_tokens_are_counted(usage: dict[str, Any], expected: Usage) -> None:
    answer, _ = OPENAI.read(make_delta("stop", content="a"), {"choices": [], "usage": usage})
    assert answer.usage == expected
