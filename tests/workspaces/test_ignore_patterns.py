"""Ignore patterns with many stars: the same verdicts as by one expression, in linear time."""

from __future__ import annotations

import random
import time
from typing import Any

from pathspec import GitIgnoreSpec

from mudroom._adapters.workspaces._listing import IgnoreRules, compile_pattern

from ..long_form import count_examples

PIECES = ["*", "*", "a", "b", "/", "**/", "?", "[ab]", "\\*"]


def make_path(rng: random.Random) -> str:
    names = ["".join(rng.choices("ab*", k=rng.randint(1, 3))) for _ in range(rng.randint(1, 4))]
    return "/".join(names) + rng.choice(["", "/"])


def test_a_test_in_linear_time_decides_as_the_expression_does() -> None:
    rng = random.Random(7)
    compared = 0
    for _ in range(count_examples(3_000, 100_000)):
        line = "".join(rng.choices(PIECES, k=rng.randint(1, 7)))
        # Of these the library has its own reading.
        if "//" in line or line.endswith("**/") or set(line) <= {"*", "/"}:
            continue
        pattern: Any = next(iter(GitIgnoreSpec.from_lines([line]).patterns))
        matches = compile_pattern(line)
        # "a/**" ignores what is in the folder; the library adds the folder itself.
        ends_inside = line.endswith("**")
        for path in (make_path(rng) for _ in range(6)):
            if not (ends_inside and path.endswith("/")):
                assert bool(matches(path)) == bool(pattern.regex.match(path)), (line, path)
                compared += 1
    assert compared > 10_000


def test_negation_blanks_and_order_hold_for_patterns_with_many_stars() -> None:
    rules = IgnoreRules().extend("", b"*.log\n!*k*e*e*p*.log \nkeep-me.log/\n")
    assert rules("a.log") and not rules("keep.log") and rules("keep-me.log/")


def test_no_pattern_holds_up_the_process() -> None:
    hard = [b"*a" * 30 + b"b", b"**/a/" * 30 + b"b", b"?*" * 30 + b"b", b"a" * 1_000_000]
    rules = IgnoreRules().extend("", b"\n".join(hard))
    began = time.process_time()
    assert not rules("a" * 255)
    assert not rules("a/" * 150 + "c")
    assert time.process_time() - began < 5
