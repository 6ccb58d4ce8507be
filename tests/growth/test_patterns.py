"""Every regular expression of the source reads hostile text in time that grows with its length.

A pattern that is added to the source is tested without being named here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..long_form import count_examples
from .built_patterns import BUILT
from .hostile_text import find_quadratic_growth, list_texts
from .patterns import SOURCE, Pattern, list_patterns

pytestmark = pytest.mark.timeout(count_examples(120, 1_800))

LONGEST = count_examples(4_096, 1_048_576)
"""Characters. Quadratic time shows earlier: a test stops as soon as a text takes 5 ms."""

BOUNDED = {
    # The caller gives them no more than so many characters.
    "mudroom/_adapters/integrations/hook_programs/events.py": 2_000,
    "mudroom/_adapters/integrations/mcp_servers/stdio_transport.py": 4_096,
    "mudroom/_adapters/models/_errors.py": 10_000,
    "mudroom/_adapters/workspaces/_listing.py": 4_096,
    "mudroom/_adapters/models/refusals/": 4_000,
    # The offline model answers no prompt with a longer word.
    "mudroom_offline/": 1_000,
}
"""Module or folder -> characters that its patterns see at most. Each may take 0.2 s. The short
form reads at most 1,024 characters in 0.05 s."""

AT_ONE_PLACE = {
    # A parser that stops at the first place where its pattern does not match.
    "mudroom/_platform/git_folders.py",
    # They match names of files and folders as a whole.
    "mudroom/_platform/patterns.py",
}

PARTS = sorted(
    str(path.relative_to(SOURCE))
    for package in SOURCE.iterdir()
    for path in (package.iterdir() if package.name == "mudroom" else [package])
    if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))
)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.filterwarnings("ignore")
def test_every_pattern_takes_linear_time(part: str) -> None:
    problems = [
        f"{pattern.place}: {pattern.method} of {pattern.source!r}: {problem}"
        for pattern in list_patterns(SOURCE / part)
        if pattern.source is not None and (problem := _find_problem(pattern))
    ]
    assert not problems, "\n".join(problems)


def test_every_place_that_builds_a_pattern_is_listed() -> None:
    """And none that is gone. A new one needs typical values, which only its author knows."""
    places = {
        (pattern.place.rpartition(":")[0], pattern.expression)
        for pattern in list_patterns(SOURCE)
        if pattern.source is None
    }
    assert places == set(BUILT)


SLOW = ("mudroom_offline/catalog.py", "mudroom_offline/files.py")
"""Patterns of the offline model for prompts, of which it reads 40,000 characters, and for parts of
files. They cost more than their length."""


@pytest.mark.parametrize("module", sorted({module for module, _ in BUILT}.difference(SLOW)))
@pytest.mark.filterwarnings("ignore")
def test_every_pattern_that_is_built_takes_linear_time(module: str) -> None:
    methods = {
        pattern.expression: pattern.method
        for pattern in list_patterns(SOURCE / module)
        if pattern.source is None
    }
    built: set[tuple[str, int, str]] = set()
    for place, expression in BUILT:
        for source in BUILT[place, expression]() if place == module else ():
            pattern: re.Pattern[str] = re.compile(source)
            built.add((pattern.pattern, pattern.flags, methods[expression]))
    problems = [
        f"{method} of {source!r}: {problem}"
        for source, flags, method in sorted(built)
        if (problem := _find_problem(Pattern(f"{module}:0", method, source, flags, "")))
    ]
    assert not problems, "\n".join(problems)


def _find_problem(pattern: Pattern, longest: int = LONGEST) -> str | None:
    """Return the hostile text on which a pattern takes too long, and the times; None for none."""
    assert pattern.source is not None
    module = pattern.place.rpartition(":")[0]
    method = "match" if module in AT_ONE_PLACE else pattern.method
    read = _make_reader(re.compile(pattern.source, pattern.flags), method)
    bound = next((length for name, length in BOUNDED.items() if module.startswith(name)), None)
    for text, write in list_texts(pattern.source, pattern.flags):
        if bound:
            start = time.thread_time()
            read(write(min(bound, LONGEST // 4)))
            seconds = time.thread_time() - start
            slowest = 0.2 if bound <= LONGEST // 4 else 0.05
            problem = f"{seconds:.3f} s" if seconds > slowest else None
        else:
            problem = find_quadratic_growth(read, write, longest)
        if problem:
            return f"{text}: {problem}"
    return None


def _make_reader(pattern: Any, method: str) -> Callable[[Any], object]:
    if method == "finditer":

        def find_all(text: Any) -> object:
            matches: Iterator[object] = pattern.finditer(text)
            return sum(1 for _ in matches)

        return find_all
    return getattr(pattern, method)


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (r"\w+\.", "finditer"),
        (r"(?m)^\s*x", "search"),
        (r"'(?:\\.|[^'\\])*'", "finditer"),
        (r"\[[^\]]*\]", "finditer"),
        (r"<!--.*?-->", "finditer"),
    ],
)
def test_a_quadratic_pattern_is_seen(source: str, method: str) -> None:
    # A fast machine reads 4,096 characters in less than the time that can be judged.
    assert _find_problem(Pattern("", method, source, 0, source), 65_536)
