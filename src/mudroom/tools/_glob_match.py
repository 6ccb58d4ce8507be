"""Glob patterns for paths: *, ?, [a-z] and {a,b} within a name, ** for any number of folders.

Matching takes linear time in the pattern and quadratic time in the path at worst. A library that
compiles the whole pattern to one regular expression backtracks: patterns with many ** never end.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence

from .._platform.lazy_pattern import compile_later

MAX_ALTERNATIVES = 200
_BRACES = compile_later(r"\{([^{}]*)\}")

PathMatcher = Callable[[str], bool]
NameMatcher = Callable[[str], object]


def compile_glob(pattern: str) -> PathMatcher:
    """Return a function that tells if a relative path matches.

    Raises ValueError when the pattern has more than MAX_ALTERNATIVES alternatives in braces.
    """
    alternatives: list[str] = []
    for alternative in _expand_braces(pattern):
        alternatives.append(alternative)
        if len(alternatives) > MAX_ALTERNATIVES:
            raise ValueError(
                f"pattern: has more than {MAX_ALTERNATIVES} alternatives in braces; "
                "use a simpler one"
            )
    matchers = [_compile_alternative(alternative) for alternative in alternatives]
    if len(matchers) == 1:
        return matchers[0]
    return lambda path: any(matches(path) for matches in matchers)


def _expand_braces(pattern: str) -> Iterator[str]:
    groups = (group for group in _BRACES.finditer(pattern) if "," in group[1])
    first = next(groups, None)
    if first is None:
        yield pattern
        return
    for choice in first[1].split(","):
        yield from _expand_braces(pattern[: first.start()] + choice + pattern[first.end() :])


def _compile_alternative(pattern: str) -> PathMatcher:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if names and pattern.endswith("/**"):
        names.append("*")
    # fnmatch builds regular expressions with atomic groups: they do not backtrack.
    tests = [None if name == "**" else re.compile(fnmatch.translate(name)).match for name in names]
    match tests:
        case [only] if only is not None:
            return lambda path: "/" not in path and only(path) is not None
        case [None, last] if last is not None:
            return lambda path: last(path.rpartition("/")[2]) is not None
        case _:
            return lambda path: _matches(tests, path.split("/"))


def _matches(tests: Sequence[NameMatcher | None], names: Sequence[str]) -> bool:
    """Compare from left to right; on a mismatch the last ** (None) takes one name more."""
    test = 0
    name = 0
    last_star = -1
    star_end = 0
    while name < len(names):
        current = tests[test] if test < len(tests) else None
        if test < len(tests) and current is None:
            last_star = test
            star_end = name
            test += 1
        elif current is not None and current(names[name]):
            test += 1
            name += 1
        elif last_star >= 0:
            star_end += 1
            test = last_star + 1
            name = star_end
        else:
            return False
    return all(remaining is None for remaining in tests[test:])
