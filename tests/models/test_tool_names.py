"""Tests of tool names and of arguments on the wires."""

import json
import re
from collections.abc import Callable

import msgspec
import pytest

from mudroom._adapters.models._json import clean, encode, make_decoder, parse_arguments
from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models.openai.chat import read_refused_calls
from mudroom._core.messages import ToolCallBlock

from .wires import ANTHROPIC, GOOGLE, OLLAMA, OPENAI, RESPONSES, Wire


def test_names_survive_a_round_trip() -> None:
    names = ToolNames(
        ["read", "self.emitvalue", "self_emitvalue", "文件", "9lives", "x" * 100, "x" * 101]
    )
    wired = [
        names.to_wire(name)
        for name in (
            "read",
            "self.emitvalue",
            "self_emitvalue",
            "文件",
            "9lives",
            "x" * 100,
            "x" * 101,
        )
    ]
    assert wired[0] == "read"
    assert wired[2] == "self_emitvalue"
    assert len(set(wired)) == len(wired)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in wired)
    assert names.from_wire(names.to_wire("self.emitvalue")) == "self.emitvalue"
    assert [names.from_wire(name) for name in wired[3:]] == ["文件", "9lives", "x" * 100, "x" * 101]


def test_a_name_that_was_not_offered_is_made_legal_and_read_unchanged() -> None:
    assert ToolNames([]).to_wire("a.b") == "a_b"
    assert ToolNames([]).from_wire("a_b") == "a_b"


def test_nul_and_lone_surrogates_are_removed_from_json() -> None:
    sent = encode({"a\0": ["x\ud800y", "\ud83d\ude00", "z\0"], "n": 1.5})
    assert json.loads(sent) == {"a": ["x\ufffdy", "\U0001f600", "z"], "n": 1.5}
    assert json.loads(encode({"path": "C:\\u0000"})) == {"path": "C:\\u0000"}
    assert clean("a\0b\udfff") == "ab\ufffd"


def test_json_that_strict_parsers_refuse_is_read() -> None:
    decode = make_decoder(dict[str, str])
    assert decode(b'{"a":"\\ud83d"}') == {"a": "\ud83d"}
    assert decode(b'{"a":"\xff"}') == {"a": "\ufffd"}
    for bad in (b"{", b"<html>", b'{"a":1}', b""):
        with pytest.raises(msgspec.DecodeError):
            decode(bad)


@pytest.mark.parametrize(
    ("text", "arguments", "malformed"),
    [
        ("", {}, ""),
        ('{"path": "a"}', {"path": "a"}, ""),
        ('{"path": "a', {}, '{"path": "a'),
        ("[1]", {}, "[1]"),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}, ""),
        ('{"a\\u0000": 1}', {"a": 1}, ""),
        ('{"a": 1, "a": 2}', {}, "the key 'a' occurs twice"),
        ('{"a": 1, "\\u0061" : 1}', {}, "the key 'a' occurs twice"),
        ('{"a": [{"b": 1}, {"c": {"d": 1, "d": 1}}]}', {}, "the key 'd' occurs twice"),
        ('{"a": [{"b": 1}, {"b": 2}]}', {"a": [{"b": 1}, {"b": 2}]}, ""),
        ('{"a": "\\"b\\": 1, \\"b\\": 2"}', {"a": '"b": 1, "b": 2'}, ""),
    ],
)
def test_arguments_that_are_no_object_are_kept_as_malformed_text(
    text: str, arguments: object, malformed: str
) -> None:
    assert parse_arguments(text) == (arguments, malformed)


# --- arguments of tool calls that arrive as objects are read as exactly as those in texts


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
