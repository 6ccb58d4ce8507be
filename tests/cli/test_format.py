"""Text layout: figures, widths, truncation, glyphs, colors, and listings."""

from __future__ import annotations

import itertools

import pytest

from mudroom._cli.output.listing import format_entry, format_row, format_rows
from mudroom._cli.output.text import (
    ASCII,
    UNICODE,
    Glyphs,
    choose_agent_color,
    choose_glyphs,
    fit_with_figures,
    format_seconds,
    format_tokens,
    measure_width,
    paint,
    split_line,
    truncate,
    wrap,
    wrap_indented,
)
from mudroom._core.listings import count_noun


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0"),
        (950, "950"),
        (999, "999"),
        (1000, "1.0k"),
        (41_350, "41.4k"),
        (999_949, "999.9k"),
        (999_950, "1.0M"),
        (12_340_000, "12.3M"),
    ],
)
def test_token_counts_are_short(count: int, words: str):
    assert format_tokens(count) == words
    assert len(words) <= 6


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (0, "0.0s"),
        (4.24, "4.2s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (29, "29s"),
        (59.96, "1m 00s"),
        (64, "1m 04s"),
        (3600, "1h 00m"),
        (7530, "2h 05m"),
        (86_399, "23h 59m"),
        (86_400, "1d 00h"),
        (5_434_500, "62d 21h"),
    ],
)
def test_seconds_are_formatted_as_a_duration(span: float, words: str):
    assert format_seconds(span) == words


def test_the_noun_agrees_with_its_count():
    assert [count_noun(n, "tool use") for n in (0, 1, 1200)] == [
        "0 tool uses",
        "1 tool use",
        "1,200 tool uses",
    ]


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("short", 5, "short"),
        ("too long", 5, "too …"),
        ("中文文字", 8, "中文文字"),
        ("中文文字", 7, "中文文…"),
        ("中文文字", 6, "中文…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("abc", -3, ""),
    ],
)
def test_truncate_counts_two_columns_for_wide_characters(text: str, columns: int, shown: str):
    assert truncate(text, columns) == shown
    assert measure_width(shown) <= max(0, columns)


def test_chinese_wraps_between_characters_and_not_before_punctuation():
    text = "引文是在文件前 60 行内开始、像是说明文字的注释（或标题）；它之前可能还有 .gitignore"
    for columns in range(10, 60):
        rows = list(wrap(text, columns))
        assert "".join(rows).replace(" ", "") == text.replace(" ", "")
        assert all(measure_width(row) <= columns for row in rows)
        assert not [row for row in rows[1:] if row[0] in "、；）"]
        assert not [row for row in rows if row[-1] == "（"]
        if columns >= 20:
            assert all(measure_width(row) >= columns - 13 for row in rows[:-1])


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (60, "read src/module.py · 3 tools · 2.1k tokens · 29s"),
        (40, "read src/module.py · 2.1k tokens · 29s"),
        (30, "read src/module.py · 29s"),
        (20, "read src/modu… · 29s"),
        (17, "read src/module.…"),
        (6, "read …"),
    ],
)
def test_figures_are_dropped_before_the_text_is_cut_too_short(columns: int, line: str):
    shown = "".join(
        fit_with_figures(
            "read src/module.py",
            ["3 tools", "2.1k tokens", "29s"],
            columns,
            UNICODE,
            min_columns=12,
        )
    )
    assert measure_width(shown) <= columns
    assert shown == line


def test_figures_of_finished_runs_are_in_brackets():
    assert fit_with_figures("Done", ["9 tool uses", "29s"], 40, UNICODE, in_brackets=True) == (
        "Done",
        " (9 tool uses · 29s)",
    )
    assert fit_with_figures("Done", ["9 tool uses", "29s"], 12, UNICODE, in_brackets=True) == (
        "Done",
        " (29s)",
    )


@pytest.mark.parametrize(
    ("encoding", "glyphs"),
    [("utf-8", UNICODE), (None, UNICODE), ("ascii", ASCII), ("latin-1", ASCII), ("no such", ASCII)],
)
def test_glyphs_fit_the_encoding_of_the_stream(encoding: str | None, glyphs: Glyphs):
    assert choose_glyphs(encoding) is glyphs


def test_ascii_branches_are_as_wide_as_the_unicode_ones():
    assert [measure_width(ASCII.tee), measure_width(ASCII.end), measure_width(ASCII.bar)] == [
        measure_width(UNICODE.tee),
        measure_width(UNICODE.end),
        measure_width(UNICODE.bar),
    ]
    assert "".join(getattr(ASCII, name) for name in ASCII.__struct_fields__).isascii()


def test_paint_adds_styles_only_with_color():
    line = [("a", "bold red"), ("b", ""), ("", "dim")]
    assert paint([line], color=False) == "ab\n"
    assert paint([line, [("c", "dim")]], color=True) == "\x1b[1;31ma\x1b[0mb\n\x1b[2mc\x1b[0m\n"


def test_an_agent_keeps_its_color():
    assert choose_agent_color("explore") == "cyan"
    assert choose_agent_color("审查") == choose_agent_color("审查")


@pytest.mark.parametrize("sign", "-+ ")
def test_further_rows_of_a_line_of_a_difference_begin_below_its_text(sign: str) -> None:
    line = [(f"  {sign}  9  ", "green"), ("    return 一一一一一一一 and other", "green")]
    rows = ["".join(text for text, _ in row) for row in split_line(line, 24)]
    indent = " " * len(f"  {sign}  9  ")
    assert rows[0] == f"  {sign}  9      return "
    assert rows[1:] == [f"{indent}一一一一一一一 ", f"{indent}and other"]
    assert len(list(split_line(line, 12))) > 3, "a very narrow screen has no room for it"


@pytest.mark.parametrize("columns", [12, 40, 80])
def test_a_split_line_keeps_words_whole_and_every_character(columns: int) -> None:
    code = "    return [row for line in self.body for row in split_line(line, columns)]  # all"
    rows = list(split_line([("  + ", "green"), (code, "green")], columns))
    texts = ["".join(text for text, _ in row) for row in rows]
    indent = len("  ") + len("  ")
    assert texts[0] + "".join(text[indent:] for text in texts[1:]) == "  + " + code
    assert not "".join(text[:indent] for text in texts[1:]).strip()
    assert all(measure_width(text) <= columns for text in texts)
    cut = [a[-1] + b[indent] for a, b in itertools.pairwise(texts) if " " not in a[-1] + b[indent]]
    assert columns < 40 or not cut


def test_a_split_line_wraps_words_of_several_parts_and_indents_further_rows() -> None:
    command = "make check-everything-here"
    line = [("  ", ""), ("sort -n | tail -5 && ", ""), (command, "bold yellow")]
    rows = list(split_line(line, 40))
    assert rows == [
        [("  ", ""), ("sort -n | tail -5 && ", ""), ("make ", "bold yellow")],
        [("    ", ""), ("check-everything-here", "bold yellow")],
    ]


def test_a_word_that_ends_with_a_row_of_a_split_line_stays_on_it() -> None:
    rows = ["".join(part for part, _ in row) for row in split_line([("aaaa bbbb cccc", "")], 9)]
    assert rows == ["aaaa bbbb", "   cccc"], "the blank between the words stays"


def test_further_rows_of_an_indented_or_numbered_line_are_indented() -> None:
    rule = "deny bash(rm:*) (from the settings of the folder)"
    assert list(wrap_indented(f"  {rule}", 30)) == [
        "  deny bash(rm:*) (from the",
        "    settings of the folder)",
    ]
    assert list(wrap_indented(f"  1. {rule}", 40)) == [
        "  1. deny bash(rm:*) (from the settings",
        "     of the folder)",
    ]
    assert list(wrap_indented(rule, 30)) == list(wrap(rule, 30)), "a paragraph has no indentation"
    narrow = list(wrap_indented(f"  {rule}", 5))
    assert narrow == list(wrap(f"  {rule}", 5)), "a very narrow screen has no room for it"


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
