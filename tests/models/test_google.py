"""Tests of the Google wire: request bodies and answers."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom._core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig, StreamChunk

from .wires import GOOGLE, SCHEMA, make_tool

TOOLS = (make_tool("read"), make_tool("self.emitvalue"))


def parts(message: Message, **options: Any) -> list[dict[str, Any]]:
    """Return the parts of a message for Google's own server."""
    contents = GOOGLE.get_messages(message, base_url="", **options)
    return [part for content in contents for part in content["parts"]]


def chunk(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-x", "responseId": "r1", **fields}


def called(name: str, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **fields}}


def test_a_body_has_system_tools_sampling_and_contents() -> None:
    body = GOOGLE.build(
        user_message("Hello"),
        config=RequestConfig(system="Be brief.", tools=TOOLS, temperature=0.5, top_p=0.9),
    )
    assert list(body) == ["systemInstruction", "tools", "generationConfig", "contents"]
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["generationConfig"] == {"maxOutputTokens": 32_768, "temperature": 0.5, "topP": 0.9}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Hello"}]}]
    declared = body["tools"][0]["functionDeclarations"]
    assert [entry["name"] for entry in declared] == ["read", "self_emitvalue"]
    assert declared[0]["parametersJsonSchema"] == SCHEMA


def test_older_models_get_their_lower_token_limit() -> None:
    assert GOOGLE.build(model="gemini-2.0-flash")["generationConfig"]["maxOutputTokens"] == 8_192
    assert (
        GOOGLE.build(config=RequestConfig(system="", max_tokens=5))["generationConfig"][
            "maxOutputTokens"
        ]
        == 5
    )


def test_results_come_before_texts_in_one_content() -> None:
    message = UserMessage(
        (
            TextBlock("Go on."),
            ToolResultBlock("1", "self.emitvalue", "one"),
            ToolResultBlock("2", "read", "no such file", error=True),
        )
    )
    first, second, text = parts(message)
    assert first["functionResponse"] == {
        "id": "1",
        "name": "self_emitvalue",
        "response": {"result": "one"},
    }
    assert second["functionResponse"]["response"] == {"error": "no such file"}
    assert text == {"text": "Go on."}


def test_thoughts_and_signatures_are_sent_only_to_the_wire_that_wrote_them() -> None:
    content = (
        ThinkingBlock("hm", "s1"),
        TextBlock("a", "s2"),
        ToolCallBlock("1", "read", {"p": 1}, signature="s3"),
        ToolCallBlock("2", "read", {}),
    )
    assert parts(AssistantMessage(content, wire="google"), model="gemini-3-pro") == [
        {"text": "hm", "thought": True, "thoughtSignature": "s1"},
        {"text": "a", "thoughtSignature": "s2"},
        {"functionCall": {"id": "1", "name": "read", "args": {"p": 1}}, "thoughtSignature": "s3"},
        {"functionCall": {"id": "2", "name": "read", "args": {}}},
    ]


def test_thinking_of_another_wire_is_left_out_and_its_first_call_has_a_placeholder_signature() -> (
    None
):
    message = AssistantMessage(
        (
            ThinkingBlock("hm", "s1"),
            TextBlock("a", "s2"),
            ToolCallBlock("1", "read", {}, signature="s3"),
            ToolCallBlock("2", "read", {}),
        ),
        wire="anthropic",
    )
    calls: list[dict[str, Any]] = [
        {"functionCall": {"id": "1", "name": "read", "args": {}}},
        {"functionCall": {"id": "2", "name": "read", "args": {}}},
    ]
    for old in ("gemini-2.5-flash", "gemma-3-27b"):
        assert parts(message, model=old) == [{"text": "a"}, *calls]
    calls[0] |= {"thoughtSignature": "skip_thought_signature_validator"}
    for current in ("gemini-3-pro", "gemini-flash-latest", "gemini-4-argon"):
        assert parts(message, model=current) == [{"text": "a"}, *calls]


def test_an_unsigned_call_of_an_older_gemini_has_a_placeholder_signature() -> None:
    calls = (ToolCallBlock("1", "read", {}), ToolCallBlock("2", "read", {}, signature="s"))
    message = AssistantMessage(calls, wire="google", model="gemini-2.5-flash")
    sent = parts(message, model="gemini-3-pro")
    signatures = [part.get("thoughtSignature") for part in sent]
    assert signatures == ["skip_thought_signature_validator", "s"]
    assert "thoughtSignature" not in parts(message, model="gemini-2.5-flash")[0]
    own = AssistantMessage(calls, wire="google", model="gemini-3-pro")
    assert "thoughtSignature" not in parts(own, model="gemini-3-pro")[0]


def test_calls_keep_ids_and_signatures() -> None:
    first = {**called("self_emitvalue", id="a", args={"p": 1}), "thoughtSignature": "s1"}
    answer, chunks = GOOGLE.read(
        chunk(first, called("read", id="b")),
        chunk({"text": ""}, finish="STOP"),
    )
    assert answer.content == (
        ToolCallBlock("a", "self.emitvalue", {"p": 1}, signature="s1"),
        ToolCallBlock("b", "read", {}),
    )
    assert answer.stop_reason is StopReason.CALLS
    assert chunks == [StreamChunk("call", '{"p": 1}'), StreamChunk("call", "{}")]


def test_a_call_without_id_gets_one_that_is_not_sent_back() -> None:
    answer, _ = GOOGLE.read(chunk(called("read", args={}), called("read", args={}), finish="STOP"))
    assert len({call.id for call in answer.tool_calls}) == 2
    assert [part["functionCall"] for part in parts(answer)] == [{"name": "read", "args": {}}] * 2
    (part,) = parts(UserMessage((ToolResultBlock(answer.tool_calls[0].id, "read", "x"),)))
    assert part["functionResponse"] == {"name": "read", "response": {"result": "x"}}


def test_a_signature_on_an_empty_part_belongs_to_the_text_before_it() -> None:
    answer, _ = GOOGLE.read(
        chunk({"text": "a"}),
        chunk({"text": "b"}),
        chunk({"text": "", "thoughtSignature": "s"}),
        chunk({"text": "c"}, finish="STOP"),
    )
    assert answer.content == (TextBlock("ab", "s"), TextBlock("c", is_continuation=True))


def test_a_finish_reason_in_every_chunk_does_not_end_the_answer() -> None:
    assert (
        GOOGLE.read(chunk({"text": "a"}, finish="STOP"), chunk({"text": "b"}, finish="STOP"))[
            0
        ].text
        == "ab"
    )


def test_a_blocked_prompt_is_a_refusal() -> None:
    answer, _ = GOOGLE.read(
        {
            "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
            "usageMetadata": {"promptTokenCount": 3},
        }
    )
    assert (answer.content, answer.stop_reason, answer.usage.input_tokens) == (
        (),
        StopReason.REFUSAL,
        3,
    )


@pytest.mark.parametrize("parts", [(), ({"text": "I plan.", "thought": True},)], ids=str)
@pytest.mark.parametrize(
    "reason",
    [
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
    ],
)
def test_a_faulty_answer_stopped_early_and_is_no_refusal(
    reason: str, parts: tuple[dict[str, Any], ...]
) -> None:
    answer, _ = GOOGLE.read(chunk(*parts, finish=reason))
    assert answer.stop_reason is StopReason.OTHER
    assert answer.provider_stop_reason == reason
