"""Listings on terminals of 40, 80 and 200 columns, and in pipes."""

from __future__ import annotations

from mudroom._cli.output.listing import format_entry, format_row, format_rows
from mudroom._cli.output.text import measure_width

ROWS = [
    ("groq", "set GROQ_API_KEY", "openai/gpt-oss-120b"),
    ("openai-responses", "set OPENAI_API_KEY", "gpt with a long text that is wrapped"),
]


def test_rows_have_columns_and_the_last_one_is_wrapped_in_its_column() -> None:
    assert format_rows(ROWS, 80) == [
        "groq              set GROQ_API_KEY    openai/gpt-oss-120b",
        "openai-responses  set OPENAI_API_KEY  gpt with a long text that is wrapped",
    ]
    assert format_rows(ROWS, 64) == [
        "groq              set GROQ_API_KEY    openai/gpt-oss-120b",
        "openai-responses  set OPENAI_API_KEY  gpt with a long text that",
        "                                      is wrapped",
    ]


def test_rows_that_do_not_fit_have_their_text_below() -> None:
    assert format_rows(ROWS, 40) == [
        "groq  set GROQ_API_KEY",
        "    openai/gpt-oss-120b",
        "openai-responses  set OPENAI_API_KEY",
        "    gpt with a long text that is wrapped",
    ]
    assert format_rows([*ROWS, ("zai", "", "glm")], 40)[-1] == "zai  glm"


def test_cells_are_wrapped_between_each_other_and_a_text_may_be_cut() -> None:
    row = ("ad5", "2026-11-22 18:33", "1 child", "the text of a long prompt")
    assert list(format_row(row, (3, 16, 7), 24, is_text_cut=True)) == [
        "ad5  2026-11-22 18:33",
        "    1 child",
        "    the text of a long …",
    ]


def test_a_pipe_gets_one_line_per_row() -> None:
    text = "word " * 100 + "end"
    assert format_rows([("name", text)], 0) == [f"name  {text}"]
    assert format_entry(text, 0) == text


def test_a_long_path_stays_whole_and_chinese_is_cut() -> None:
    path = "/a/very/long/path/that/does/not/fit/into/the/line.md"
    assert format_entry(f"file: {path} (x)", 30, indent=2) == f"file:\n  {path}\n  (x)"
    wrapped = format_entry("总结" * 20, 30, indent=2).split("\n")
    assert [measure_width(line) for line in wrapped] == [30, 30, 24]
