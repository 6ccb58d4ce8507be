"""Arguments of tool calls that arrive as JSON objects: read as exactly as those in texts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models.openai.chat import read_refused_calls
from mudroom._core.messages import ToolCallBlock

from .wires import ANTHROPIC, GOOGLE, OLLAMA, OPENAI, RESPONSES, Wire

NAMES = ToolNames(["read"])
EVENTS: list[tuple[Wire, list[str]]] = [
    (
        GOOGLE,
        [
            '{"candidates": [{"content": {"parts": [{"functionCall": {"name": "read", '
            '"args": ARGUMENTS}}]}, "finishReason": "STOP"}]}'
        ],
    ),
    (
        OLLAMA,
        [
            '{"message": {"tool_calls": [{"function": {"name": "read", "arguments": ARGUMENTS}}]}, '
            '"done": true}'
        ],
    ),
    (
        OPENAI,
        [
            '{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "read", '
            '"arguments": ARGUMENTS}}]}, "finish_reason": "stop"}]}'
        ],
    ),
    (
        RESPONSES,
        [
            '{"type": "response.completed", "response": {"status": "completed", "output": '
            '[{"type": "function_call", "name": "read", "arguments": ARGUMENTS}]}}'
        ],
    ),
    (
        ANTHROPIC,
        [
            '{"type": "message_start", "message": {"id": "m1"}}',
            '{"type": "content_block_start", "index": 0, "content_block": '
            '{"type": "tool_use", "id": "c1", "name": "read", "input": ARGUMENTS}}',
            '{"type": "content_block_stop", "index": 0}',
            '{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}',
            '{"type": "message_stop"}',
        ],
    ),
]


def read_groq(arguments: str) -> ToolCallBlock:
    generation = f'[{{"name": "read", "parameters": {arguments}}}]'
    error = {"code": "tool_use_failed", "failed_generation": generation}
    return read_refused_calls(json.dumps({"error": error}).encode(), NAMES)[0]


def make_read(wire: Wire, events: list[str]) -> Callable[[str], ToolCallBlock]:
    def read(arguments: str) -> ToolCallBlock:
        filled = (event.replace("ARGUMENTS", arguments).encode() for event in events)
        return wire.read(*filled)[0].tool_calls[0]

    return read


READERS = {wire.kind.WIRE: make_read(wire, events) for wire, events in EVENTS} | {"groq": read_groq}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("arguments", "key"),
    [('{"path": "a", "path": "b"}', "path"), ('{"edits": [{"x": 1, "x": 2}]}', "x")],
)
def test_a_key_that_occurs_twice_is_a_fault(
    read: Callable[[str], ToolCallBlock], arguments: str, key: str
) -> None:
    call = read(arguments)
    assert (call.arguments, call.malformed) == ({}, f"the key '{key}' occurs twice")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_equal_keys_of_different_objects_are_no_fault(
    read: Callable[[str], ToolCallBlock],
) -> None:
    call = read('{"path": "a", "edits": [{"path": "b"}, {"path": "ü"}]}')
    assert call.malformed == ""
    assert call.arguments == {"path": "a", "edits": [{"path": "b"}, {"path": "ü"}]}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("text", [r"\ud800", r"\ud800 and more", r"a\u0000b"])
def test_texts_that_no_provider_accepts_are_cleaned(
    read: Callable[[str], ToolCallBlock], text: str
) -> None:
    call = read(f'{{"path": "{text}"}}')
    expected = json.loads(f'"{text}"').replace("\ud800", "\ufffd").replace("\0", "")
    assert (call.arguments, call.malformed) == ({"path": expected}, "")
