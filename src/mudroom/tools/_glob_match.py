"""Glob patterns for paths: *, ?, [a-z] and {a,b} within a name, ** for any number of folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .._platform.lazy_pattern import compile_later
from .._platform.name_patterns import compile_names, match_names

MAX_ALTERNATIVES = 200
_BRACES = compile_later(r"\{([^{}]*)\}")

PathMatcher = Callable[[str], bool]


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
    tests = compile_names(names)
    match tests:
        case [only] if only is not None:
            return lambda path: "/" not in path and only(path) is not None
        case [None, last] if last is not None:
            return lambda path: last(path.rpartition("/")[2]) is not None
        case _:
            return lambda path: match_names(tests, path.split("/"))
