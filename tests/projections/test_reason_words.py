"""Words for the reasons of runs: one table for the terminal, the viewer and the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mudroom import Reason
from mudroom._projections.reason_words import REASON_WORDS, describe_reason
from mudroom._viewer.export import load_page_files

PAGE = Path(__file__).parents[2] / "docs" / "tasks-and-reports.md"


def test_each_reason_has_words_and_an_unknown_one_its_name():
    assert set(REASON_WORDS) == set(Reason)
    assert describe_reason("MAX_TURNS") == "turn limit"
    assert describe_reason("OF_A_NEWER_VERSION") == "OF_A_NEWER_VERSION"


def test_the_viewer_has_the_words_of_the_terminal():
    script = load_page_files()["reason_words.js"].decode()
    table = json.loads(script.removeprefix("const REASON_WORDS = ").removesuffix(";\n"))
    assert table == {reason.value: list(words) for reason, words in REASON_WORDS.items()}


def test_the_documentation_lists_the_words():
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([a-z ]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == [(reason.value, words.outcome) for reason, words in REASON_WORDS.items()]
