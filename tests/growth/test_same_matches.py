"""Code that replaced slow patterns finds what they found, and bounds what it reads."""

from __future__ import annotations

import random
import re

import msgspec
import pytest

from mudroom._adapters.integrations.config_files import _decode_json
from mudroom._adapters.integrations.mcp_servers.load import EXPANSIONS, Expander
from mudroom._adapters.models.refusals.classifier import find_status, read_refusal
from mudroom.permissions.path_rules import _replace_classes
from mudroom.permissions.program_wrappers import _list_literals

from ..long_form import count_examples

LITERAL = re.compile(r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`[^`]*`")


def test_literals_and_classes_are_those_of_the_simple_patterns() -> None:
    choose = random.Random(7)
    for _ in range(count_examples(5_000, 500_000)):
        text = "".join(choose.choices("'\"`\\\nab[]", k=choose.randrange(16)))
        assert list(_list_literals(text)) == [one[1:-1] for one in LITERAL.findall(text)], text
        assert _replace_classes(text) == re.sub(r"\[[^\]]*\]", "?", text), text


@pytest.mark.parametrize("text", ['{"a": 1} /* open', '{"a": 1, "b', '{"a": "\\', '{"a": 1} /*/'])
def test_an_open_string_or_comment_is_an_error(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        _decode_json(text.encode())


@pytest.mark.parametrize("text", ["${A:-open", "{env:A", "${A", "$", "${A:-${A:-"])
@pytest.mark.parametrize("kind", EXPANSIONS)
def test_a_brace_without_end_stays(kind: str, text: str) -> None:
    expander = Expander(environ={"A": "value"}, place="/p", user_home="/h", base="/p")
    assert expander.expand(kind, text) == text
    assert not expander.unset


def test_numbers_of_any_length_in_a_refusal_are_read_or_skipped() -> None:
    digits = "9" * 50_000
    assert find_status({"error": {"code": digits}}, 418) == 418
    for text in (f"at most {digits} completion tokens", f"context length is {digits} tokens"):
        body = msgspec.json.encode({"error": {"message": text, "code": digits}})
        assert read_refusal(400, text[:600], body).wait == 0
