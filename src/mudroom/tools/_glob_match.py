"""Shell patterns for paths: *, ?, [a-z], {a,b} within a name, ** for any folders. No pattern can take long."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence

_ALTERNATIVES = 200
_BRACES = re.compile(r"\{([^{}]*)\}")


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a relative path matches. Raises ValueError when the pattern has too many alternatives."""
    found: list[str] = []
    for alternative in _expanded(pattern):
        found.append(alternative)
        if len(found) > _ALTERNATIVES:
            raise ValueError(
                f"pattern: has more than {_ALTERNATIVES} alternatives in braces; use a simpler one"
            )
    tests = [_one(alternative) for alternative in found]
    return tests[0] if len(tests) == 1 else lambda path: any(test(path) for test in tests)


def _expanded(pattern: str) -> Iterator[str]:
    braces = next((found for found in _BRACES.finditer(pattern) if "," in found[1]), None)
    if braces is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from _expanded(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _one(pattern: str) -> Callable[[str], bool]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if names and pattern.endswith("/**"):
        names.append("*")
    # fnmatch builds regexes with atomic groups: they do not backtrack.
    tests = [None if name == "**" else re.compile(fnmatch.translate(name)).match for name in names]
    if len(tests) == 1 and tests[0] is not None:
        only = tests[0]
        return lambda path: "/" not in path and only(path) is not None
    if len(tests) == 2 and tests[0] is None and tests[1] is not None:
        last = tests[1]
        return lambda path: last(path.rpartition("/")[2]) is not None
    return lambda path: _matches(tests, path.split("/"))


def _matches(tests: Sequence[Callable[[str], object] | None], names: Sequence[str]) -> bool:
    """Both from left to right; on a mismatch the last ** takes one name more."""
    test = name = 0
    star, taken = -1, 0
    while name < len(names):
        here = tests[test] if test < len(tests) else None
        if test < len(tests) and here is None:
            star, taken, test = test, name, test + 1
        elif here is not None and here(names[name]):
            test, name = test + 1, name + 1
        elif star >= 0:
            taken += 1
            test, name = star + 1, taken
        else:
            return False
    return all(left is None for left in tests[test:])
