"""Templates are filled once: no value, however it looks, is ever looked at again."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom import ContextState, UsageError
from mudroom.scope.config import fill_template

KEYS = st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True)
HOSTILE = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        [
            "${",
            "${}",
            "${a}",
            "$${a}",
            "${${a}}",
            "}",
            "\\1",
            r"\g<0>",
            "${ключ}",
            "\0",
            "%s",
            "{a}",
            "${a",
            "\ud7ff￿",
        ]
    ),
    st.integers(),
    st.none(),
)


@settings(max_examples=200, deadline=None)
@given(
    values=st.dictionaries(KEYS, HOSTILE, min_size=1, max_size=5),
    between=st.lists(st.text(max_size=20), min_size=6, max_size=6),
)
def test_each_placeholder_is_replaced_with_exactly_its_value(
    values: dict[str, object], between: list[str]
) -> None:
    plain = [part.replace("$", "").replace("{", "") for part in between]
    text, wanted = plain[0], plain[0]
    for part, (key, value) in zip(plain[1:], values.items(), strict=False):
        text += "${" + key + "}" + part
        wanted += str(value) + part
    assert fill_template(text, ContextState(**values)) == wanted


@settings(max_examples=100, deadline=None)
@given(value=HOSTILE)
def test_a_value_never_expands_twice(value: object) -> None:
    state = ContextState(a=value, b="SECRET")
    assert fill_template("${a}", state) == str(value)
    assert fill_template("${a}", ContextState(a="${b}", b="SECRET")) == "${b}"


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="${}ab \n", max_size=60))
def test_any_text_is_filled_or_its_missing_keys_are_named(text: str) -> None:
    places = re.findall(r"\$\{(\w+)\}", text)
    try:
        filled = fill_template(text, ContextState(a="1"))
    except UsageError as error:
        missing = list(dict.fromkeys(key for key in places if key != "a"))
        assert str(error) == f"Missing context values for the following keys: {', '.join(missing)}"
    else:
        assert set(places) <= {"a"}
        assert filled == text.replace("${a}", "1")


def test_keys_and_values_may_be_in_any_script() -> None:
    assert fill_template("读 ${文件}", ContextState(文件="论文.md")) == "读 论文.md"


@pytest.mark.parametrize("value", ["x" * 1_000_000, "${a}" * 250_000, "${" * 500_000])
def test_a_megabyte_is_filled_in_quickly_and_once(value: str) -> None:
    began = time.perf_counter()
    assert fill_template("${a}|${a}", ContextState(a=value)) == f"{value}|{value}"
    assert time.perf_counter() - began < 1


def test_a_megabyte_of_placeholders_is_filled_quickly() -> None:
    began = time.perf_counter()
    assert len(fill_template("${a}" * 250_000, ContextState(a="${a}"))) == 1_000_000
    assert time.perf_counter() - began < 5
