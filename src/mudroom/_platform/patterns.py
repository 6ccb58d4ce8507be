"""Patterns: regular expressions compiled at first use, so that imports are quick; globs of paths.

In a glob, *, ? and [a-z] match within a name, ** any number of folders. Matching takes linear time
in the pattern and at worst quadratic time in the path. A single regular expression for the whole
glob would backtrack: with many stars it never ends, and no other thread runs in the meantime.

Standard library only, because the sandbox daemon imports this module.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import AnyStr, Generic, cast


def compile_later(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Make a pattern that is compiled when one of its attributes is first read.

    The functions of `re` do not accept it; call its methods instead.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern(Generic[AnyStr]):
    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self._source = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # copies and pickles look for such names before __init__
            raise AttributeError(name)
        value = getattr(re.compile(self._source, self._flags), name)
        # Later reads find the attribute without __getattr__.
        setattr(self, name, value)
        return value


NameMatcher = Callable[[str], object]


# Characters. Names have at most 255 bytes, and `fnmatch` takes quadratic time for brackets.
_LONGEST_PATTERN = 500


def compile_names(names: Sequence[str]) -> list[NameMatcher | None]:
    return [None if name == "**" else _compile_name(name) for name in names]


def _compile_name(name: str) -> NameMatcher:
    if len(name) > _LONGEST_PATTERN:
        return lambda _: None
    # fnmatch builds regular expressions with atomic groups, which do not backtrack.
    return re.compile(fnmatch.translate(name)).match


def match_names(tests: Sequence[NameMatcher | None], names: Sequence[str]) -> bool:
    """Match from left to right; on a mismatch, the last ** takes in one more name."""
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
