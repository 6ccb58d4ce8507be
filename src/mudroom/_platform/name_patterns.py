"""Patterns for the names in a path: *, ? and [a-z] within a name, ** for any number of folders.

Matching takes linear time in the pattern and quadratic time in the path at worst. One regular
expression for the whole pattern backtracks: with many stars it never ends, and no other thread runs
meanwhile.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

NameMatcher = Callable[[str], object]


_LONGEST_PATTERN = 500
"""Characters. A name has at most 255 bytes, and `fnmatch` takes quadratic time for brackets."""


def compile_names(names: Sequence[str]) -> list[NameMatcher | None]:
    """Return a function for each name of a pattern that tells if a name matches; None for **."""
    return [None if name == "**" else _compile_name(name) for name in names]


def _compile_name(name: str) -> NameMatcher:
    if len(name) > _LONGEST_PATTERN:
        return _match_nothing
    # fnmatch builds regular expressions with atomic groups: they do not backtrack.
    return re.compile(fnmatch.translate(name)).match


def _match_nothing(name: str) -> None:
    return None


def match_names(tests: Sequence[NameMatcher | None], names: Sequence[str]) -> bool:
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
