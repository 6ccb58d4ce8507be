r"""Glob patterns for paths: *, ?, [a-z] and {a,b} within a name, ** for any number of folders.

A name in a pattern also matches the file of exactly that name: `app/[id]/*.tsx` finds the files in
the folder `[id]`, and what the class `[id]` means. A backslash takes a special character literally.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..._platform.patterns import NameMatcher, compile_later, compile_names, match_names

MAX_ALTERNATIVES = 200
_BRACES = compile_later(r"(?<!\\)\{((?:[^{}\\]|\\.)*)\}", re.DOTALL)
_COMMA = compile_later(r"(?<!\\),")
_SPECIAL = "*?[]{},!"
# A letter or digit after a backslash is no escape: \xe9 is how a byte of a name is written.
_ESCAPE = compile_later(r"\\([^0-9A-Za-z])", re.DOTALL)

PathMatcher = Callable[[str], bool]


def compile_glob(pattern: str) -> PathMatcher:
    """Compile a pattern to a test for relative paths.

    Raises ValueError when the pattern has more than MAX_ALTERNATIVES alternatives in braces.
    """
    alternatives = _list_alternatives(pattern, literally=True)
    if alternatives is None:
        alternatives = _list_alternatives(pattern, literally=False)
    if alternatives is None:
        raise ValueError(
            f"pattern: has more than {MAX_ALTERNATIVES} alternatives in braces; use a simpler one"
        )
    matchers = [_compile_alternative(alternative) for alternative in alternatives]
    if len(matchers) == 1:
        return matchers[0]
    plain = "/".join(name for name in pattern.split("/") if name not in ("", "."))
    return lambda path: path == plain or any(matches(path) for matches in matchers)


def list_names(pattern: str) -> set[str]:
    """List the names that a pattern spells out: files and folders that the caller means."""
    alternatives = _list_alternatives(pattern, literally=True) or [pattern]
    names = {name for alternative in alternatives for name in alternative.split("/")}
    return names | set(map(unescape, names))


def has_wildcard(name: str) -> bool:
    """Tell if a name in a pattern can match anything but itself."""
    return any(c in "*?[{" for c in _ESCAPE.sub("", name))


def unescape(pattern: str) -> str:
    return _ESCAPE.sub(r"\1", pattern)


def _list_alternatives(pattern: str, *, literally: bool) -> list[str] | None:
    """Expand the braces, or give up with None when that makes too many patterns.

    Arguments:
        literally: True also keeps each group as part of a name, for names with braces in them.
    """
    alternatives: list[str] = []
    for alternative in _expand_braces(pattern, literally=literally):
        alternatives.append(alternative)
        if len(alternatives) > MAX_ALTERNATIVES:
            return None
    return alternatives


def _expand_braces(pattern: str, *, literally: bool) -> Iterator[str]:
    groups = (group for group in _BRACES.finditer(pattern) if _COMMA.search(group[1]))
    first = next(groups, None)
    if first is None:
        yield pattern
        return
    choices = _COMMA.split(first[1])
    if literally:
        choices.append("\\{" + _COMMA.sub(r"\\,", first[1]) + "\\}")
    for choice in choices:
        expanded = pattern[: first.start()] + choice + pattern[first.end() :]
        yield from _expand_braces(expanded, literally=literally)


def _compile_alternative(pattern: str) -> PathMatcher:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if names and pattern.endswith("/**"):
        names.append("*")
    tests = [_compile_name(name) for name in names]
    match tests:
        case [only] if only is not None:
            return lambda path: "/" not in path and bool(only(path))
        case [None, last] if last is not None:
            return lambda path: bool(last(path.rpartition("/")[2]))
        case _:
            return lambda path: match_names(tests, path.split("/"))


def _compile_name(name: str) -> NameMatcher | None:
    """Compile a name to a test, or to None for `**`, which matches any number of names."""
    plain = unescape(name)
    if not has_wildcard(name):
        return lambda other: other in (name, plain)
    [matches] = compile_names([_ESCAPE.sub(_quote, name)])
    if matches is None or not any(c in name for c in "[\\"):
        return matches
    return lambda other: other in (name, plain) or matches(other)


def _quote(escape: re.Match[str]) -> str:
    """Rewrite an escaped character in the form that `fnmatch` takes literally."""
    return f"[{escape[1]}]" if escape[1] in "*?[" else escape[1]
