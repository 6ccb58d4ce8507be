"""Patterns that are compiled at their first use."""

from __future__ import annotations

import re

import pytest

from mudroom._platform.patterns import compile_later


def test_a_pattern_has_the_attributes_of_the_compiled_one() -> None:
    pattern = compile_later(r"(?P<word>b+)", re.IGNORECASE)
    compiled = re.compile(r"(?P<word>b+)", re.IGNORECASE)
    assert pattern.sub("-", "aBbc") == "a-c"
    assert [match["word"] for match in pattern.finditer("abBcb")] == ["bB", "b"]
    assert (pattern.pattern, pattern.flags) == (compiled.pattern, compiled.flags)
    assert pattern.fullmatch("abc") is None


def test_bytes_are_searched_with_a_pattern_of_bytes() -> None:
    assert compile_later(rb"\d+").findall(b"1 and 22") == [b"1", b"22"]


def test_a_pattern_is_compiled_at_its_first_use_and_no_earlier() -> None:
    pattern = compile_later("(")
    with pytest.raises(re.error, match="unterminated subpattern"):
        pattern.search("")


def test_an_unknown_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match="seek"):
        getattr(compile_later("a"), "seek")  # noqa: B009
