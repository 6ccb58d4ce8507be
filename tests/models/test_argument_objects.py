"""Arguments of tool calls that arrive as JSON objects: read as exactly as those in texts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models.anthropic import AnthropicReader
from mudroom._adapters.models.google import GoogleReader
from mudroom._adapters.models.ollama import OllamaReader
from mudroom._adapters.models.openai._chat_stream import OpenAIReader
from mudroom._adapters.models.openai.chat import read_refused_calls
from mudroom._adapters.models.openai.responses import ResponsesReader
from mudroom._core.messages import ToolCallBlock

NAMES = ToolNames(["read"])


def _read_google(arguments: str) -> ToolCallBlock:
    call = f'{{"functionCall": {{"name": "read", "args": {arguments}}}}}'
    reader = GoogleReader("m", NAMES)
    event = f'{{"candidates": [{{"content": {{"parts": [{call}]}}, "finishReason": "STOP"}}]}}'
    reader.feed(event.encode())
    return reader.finish().tool_calls[0]


def _read_ollama(arguments: str) -> ToolCallBlock:
    call = f'{{"function": {{"name": "read", "arguments": {arguments}}}}}'
    reader = OllamaReader("m", NAMES, "ollama")
    reader.feed(f'{{"message": {{"tool_calls": [{call}]}}, "done": true}}'.encode())
    return reader.finish().tool_calls[0]


def _read_chat(arguments: str) -> ToolCallBlock:
    call = f'{{"index": 0, "function": {{"name": "read", "arguments": {arguments}}}}}'
    reader = OpenAIReader("m", NAMES)
    delta = f'{{"tool_calls": [{call}]}}'
    reader.feed(f'{{"choices": [{{"delta": {delta}, "finish_reason": "stop"}}]}}'.encode())
    reader.feed(b"[DONE]")
    return reader.finish().tool_calls[0]


def _read_responses(arguments: str) -> ToolCallBlock:
    item = f'{{"type": "function_call", "name": "read", "arguments": {arguments}}}'
    reader = ResponsesReader("m", NAMES)
    response = f'{{"status": "completed", "output": [{item}]}}'
    reader.feed(f'{{"type": "response.completed", "response": {response}}}'.encode())
    return reader.finish().tool_calls[0]


def _read_anthropic(arguments: str) -> ToolCallBlock:
    block = f'{{"type": "tool_use", "id": "c1", "name": "read", "input": {arguments}}}'
    reader = AnthropicReader("m", NAMES)
    reader.feed(b'{"type": "message_start", "message": {"id": "m1"}}')
    start = f'{{"type": "content_block_start", "index": 0, "content_block": {block}}}'
    reader.feed(start.encode())
    reader.feed(b'{"type": "content_block_stop", "index": 0}')
    reader.feed(b'{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}')
    reader.feed(b'{"type": "message_stop"}')
    return reader.finish().tool_calls[0]


def _read_groq(arguments: str) -> ToolCallBlock:
    generation = f'[{{"name": "read", "parameters": {arguments}}}]'
    error = {"code": "tool_use_failed", "failed_generation": generation}
    return read_refused_calls(json.dumps({"error": error}).encode(), NAMES)[0]


READERS: dict[str, Callable[[str], ToolCallBlock]] = {
    "google": _read_google,
    "ollama": _read_ollama,
    "chat": _read_chat,
    "responses": _read_responses,
    "anthropic": _read_anthropic,
    "groq": _read_groq,
}


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
