"""Templates of system prompts: each placeholder is filled once; values are never expanded."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_form import count_examples

from mudroom import ContextState, UsageError
from mudroom.scope.config import fill_template

KEYS = st.one_of(
    st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True),
    st.sampled_from(["a.b", "a-b", "doc path", "文件", "0", "a$b", "x/y:z"]),
)
HOSTILE_VALUES = st.one_of(
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


@settings(max_examples=count_examples(80, 200), deadline=None)
@given(
    values=st.dictionaries(KEYS, HOSTILE_VALUES, min_size=1, max_size=5),
    texts=st.lists(st.text(max_size=20), min_size=6, max_size=6),
    blanks=st.sampled_from(["", " ", "\t\n"]),
)
def test_each_placeholder_is_replaced_with_exactly_its_value(
    values: dict[str, object], texts: list[str], blanks: str
) -> None:
    plain_texts = [text.replace("$", "").replace("{", "") for text in texts]
    template = expected = plain_texts[0]
    for text, (key, value) in zip(plain_texts[1:], values.items(), strict=False):
        template += "${" + blanks + key + blanks + "}" + text
        expected += str(value) + text
    assert fill_template(template, ContextState(**values)) == expected


@settings(max_examples=100, deadline=None)
@given(value=HOSTILE_VALUES)
def test_a_value_is_never_expanded(value: object) -> None:
    context = ContextState(a=value, b="SECRET")
    assert fill_template("${a}", context) == str(value)
    assert fill_template("${a}", ContextState(a="${b}", b="SECRET")) == "${b}"


@settings(max_examples=count_examples(80, 200), deadline=None)
@given(text=st.text(alphabet="${}ab .\n", max_size=60))
def test_any_text_is_filled_completely_or_refused(text: str) -> None:
    keys = [key.strip() for key in re.findall(r"\$\{([^{}]*)\}", text)]
    is_valid = len(keys) == text.count("${") and all(keys)
    try:
        filled = fill_template(text, ContextState(a="1"))
    except UsageError as error:
        missing = list(dict.fromkeys(key for key in keys if key != "a"))
        if is_valid:
            names = ", ".join(missing)
            assert str(error) == f"Missing context values for the following keys: {names}"
        else:
            assert "placeholder without a key" in str(error)
    else:
        assert is_valid and set(keys) <= {"a"}
        assert filled == re.sub(r"\$\{\s*a\s*\}", "1", text)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("读 ${文件}", "读 论文.md"),
        ("${a.b}", "dot"),
        ("${a-b}", "dash"),
        ("${ a.b }", "dot"),
        ("${two words}", "blank"),
        ("$${a-b}", "$dash"),
        ("costs $5 {a.b} $a", "costs $5 {a.b} $a"),
    ],
)
def test_every_key_that_can_be_set_can_be_used(template: str, filled: str) -> None:
    context = ContextState(文件="论文.md")
    context.set("a.b", "dot")
    context.set("a-b", "dash")
    context.set("two words", "blank")
    assert fill_template(template, context) == filled


@pytest.mark.parametrize("key", ["", " a", "a ", "a}", "{a", "${a}", "\n"])
def test_a_key_that_no_placeholder_can_name_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="cannot be a key"):
        ContextState().set(key, "value")
    with pytest.raises(UsageError, match="cannot be a key"):
        ContextState(**{key: "value"})


@pytest.mark.parametrize("text", ["${}", "${ }", "${", "${a", "${a${b}}", "${{a}}"])
def test_a_placeholder_that_no_key_can_fill_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(UsageError, match="placeholder without a key") as raised:
        fill_template(f"Read {text}", ContextState(a="1", b="2"))
    assert "put it into a value" in raised.value.remedy


@pytest.mark.parametrize("value", ["x" * 1_000_000, "${a}" * 250_000, "${" * 500_000])
def test_a_value_of_a_megabyte_is_filled_in_quickly_and_once(value: str) -> None:
    start = time.process_time()
    assert fill_template("${a}|${a}", ContextState(a=value)) == f"{value}|{value}"
    assert time.process_time() - start < 1


def test_a_megabyte_of_placeholders_is_filled_quickly() -> None:
    start = time.process_time()
    assert len(fill_template("${a}" * 250_000, ContextState(a="${a}"))) == 1_000_000
    assert time.process_time() - start < 5


def test_a_state_takes_a_mapping_and_named_values() -> None:
    state = ContextState({"doc-path": "a.md", "pages": 1}, pages=2)
    assert fill_template("${doc-path} ${pages}", state) == "a.md 2"
    with pytest.raises(UsageError, match="values must be"):
        ContextState([("a", 1)])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be a key"):
        ContextState({"a}": 1})
