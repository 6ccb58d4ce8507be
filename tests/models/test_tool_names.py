"""Tests of tool names and JSON on the wire."""

import json
import re

import msgspec
import pytest

from mudroom._adapters.models._json import clean, encode, make_decoder, parse_arguments
from mudroom._adapters.models._tool_names import ToolNames


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
