"""Paths of images in a prompt, as terminals insert dropped files."""

from __future__ import annotations

import time

import pytest

from mudroom._cli.actions.prompts import list_image_paths

LONG_LINES = {
    "a word": "x",
    "Chinese without spaces": "一个很长的提示",
    "open quotes": '" ',
    "apostrophes": "' ",
    "quotes": '"',
    "backslashes": "\\",
    "points": ".png",
    "paths in quotes": "'a.png' ",
    "paths in open quotes": '"a.png ',
}


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("look at a.png and b.JPG", ["a.png", "b.JPG"]),
        ("\"my file.gif\" 'your file.webp'", ["my file.gif", "your file.webp"]),
        (r"my\ file.jpeg", ["my file.jpeg"]),
        ("it's in a.png", ["a.png"]),
        ('"a.png', ['"a.png']),
        ("看一下 图片.png", ["图片.png"]),
        ("a.png, a.pngx png .txt", []),
        ("x" * 5_000 + ".png", []),
    ],
)
def test_paths_are_words_of_the_line(line: str, paths: list[str]) -> None:
    assert list(list_image_paths(line)) == paths


@pytest.mark.parametrize("text", LONG_LINES.values(), ids=LONG_LINES)
def test_a_line_of_any_length_takes_linear_time(text: str) -> None:
    line = (text * 300_000)[:300_000]
    start = time.process_time()
    list(list_image_paths(line))
    assert time.process_time() - start < 5, "0.1 s is usual; quadratic time would be minutes"
