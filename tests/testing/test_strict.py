"""The strict provider refuses what real ones refuse, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mudroom.testing.model_server import ServerRequest
from mudroom.testing.strict_provider import find_refusals

CALL: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
PROMPT: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "Go."}]}
OPENAI_CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "function": {"name": "read", "arguments": "{}"}}],
}
OPENAI_RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "a", "content": "x"}
OPENAI_PROMPT: dict[str, Any] = {"role": "user", "content": "Go."}
GOOGLE_CALL: dict[str, Any] = {
    "role": "model",
    "parts": [{"functionCall": {"name": "read", "args": {}}}],
}
GOOGLE_RESULT: dict[str, Any] = {
    "role": "user",
    "parts": [{"functionResponse": {"name": "read", "response": {}}}],
}
GOOGLE_PROMPT: dict[str, Any] = {"role": "user", "parts": [{"text": "Go."}]}

NOTHING: dict[str, Any] = {"role": "user", "parts": []}


def make_message(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def list_refusals(dialect: str, *messages: dict[str, Any]) -> list[str]:
    body = {"contents" if dialect == "google" else "messages": list(messages)}
    return find_refusals(ServerRequest(dialect, "/", {}, msgspec.json.encode(body), 1))


@pytest.mark.parametrize(
    ("dialect", "messages"),
    [
        (
            "anthropic",
            (
                PROMPT,
                make_message("assistant", CALL),
                make_message("user", RESULT, {"type": "text", "text": "hm"}),
            ),
        ),
        ("anthropic", (PROMPT, PROMPT)),
        (
            "openai",
            (
                {"role": "system", "content": ""},
                OPENAI_PROMPT,
                OPENAI_CALL,
                OPENAI_RESULT,
                OPENAI_PROMPT,
            ),
        ),
        ("google", (GOOGLE_PROMPT, GOOGLE_CALL, GOOGLE_RESULT, GOOGLE_CALL, GOOGLE_RESULT)),
    ],
)
def test_a_conversation_in_order_is_taken(
    dialect: str, messages: tuple[dict[str, Any], ...]
) -> None:
    assert list_refusals(dialect, *messages) == []


@pytest.mark.parametrize(
    ("dialect", "messages", "why"),
    [
        ("anthropic", (PROMPT, make_message("assistant", CALL)), "no results for calls"),
        ("anthropic", (PROMPT, make_message("assistant", CALL), PROMPT), "results of"),
        ("anthropic", (PROMPT, make_message("user", RESULT)), "results of"),
        (
            "anthropic",
            (PROMPT, make_message("assistant", CALL), make_message("user", RESULT, RESULT)),
            "results of",
        ),
        (
            "anthropic",
            (PROMPT, make_message("assistant", CALL, CALL), make_message("user", RESULT, RESULT)),
            "not new",
        ),
        (
            "anthropic",
            (PROMPT, *(make_message("assistant", CALL), make_message("user", RESULT)) * 2),
            "not new",
        ),
        (
            "anthropic",
            (
                PROMPT,
                make_message("assistant", CALL),
                make_message("user", {"type": "text", "text": "hm"}, RESULT),
            ),
            "empty block",
        ),
        ("anthropic", (make_message("user", {"type": "text", "text": " "}),), "empty block"),
        ("anthropic", (PROMPT, make_message("assistant")), "empty block"),
        (
            "anthropic",
            (make_message("assistant", {"type": "text", "text": "Hi."}),),
            "first message",
        ),
        ("openai", (OPENAI_PROMPT, OPENAI_CALL), "no results"),
        ("openai", (OPENAI_PROMPT, OPENAI_RESULT), "results of"),
        ("openai", (OPENAI_PROMPT, {"role": "assistant", "content": ""}), "empty block"),
        ("google", (GOOGLE_PROMPT, GOOGLE_CALL, GOOGLE_PROMPT), "results of"),
        ("google", (GOOGLE_PROMPT, GOOGLE_RESULT), "results of"),
        ("google", (NOTHING,), "empty block"),
    ],
)
def test_what_providers_refuse_is_refused(
    dialect: str, messages: tuple[dict[str, Any], ...], why: str
) -> None:
    assert any(why in reason for reason in list_refusals(dialect, *messages))


@pytest.mark.parametrize(
    "body",
    [b'{"messages": [\xff]}', b'{"messages": ["\\ud83d"]}', b'{"messages": ["\\u0000"]}', b"{"],
)
def test_bytes_that_no_provider_reads_are_refused(body: bytes) -> None:
    assert len(find_refusals(ServerRequest("anthropic", "/", {}, body, 1))) == 1
