"""Tool patterns: entries of an agent's `tools`, such as `read`, `mcp__*`, `bash(git:*)`, `!write`.

A pattern names a tool, or several with `*`. `!` in front excludes. Text in brackets limits a
pattern to some calls of the tool; the permission policy reads it, not this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from .._platform.lazy_pattern import compile_later
from .tool_names import normalize_tool_name

_PATTERN = compile_later(r"(!?)\s*+([^()]*+)(?:(\()(.*?)(\)?))?", re.DOTALL)
_ALL_CALLS = ("", "*", ":*")


class ToolPattern(Struct, frozen=True):
    """One parsed tool pattern.

    Arguments:
        text: the pattern as written.
        tool: mudroom's name of the tool, or a name with `*`.
        written_name: the name as written; a tool may have exactly this name.
        calls: text in the brackets, "" for all calls.
        has_brackets: true if the pattern is about single calls.
        is_excluded: true if the pattern takes calls away.
        is_valid: false for a missing name or bracket.
    """

    text: str
    tool: str
    written_name: str
    calls: str = ""
    has_brackets: bool = False
    is_excluded: bool = False
    is_valid: bool = True

    def matches_tool(self, name: str) -> bool:
        """Return whether the pattern names this tool."""
        if name in (self.tool, self.written_name):
            return True
        return any(
            "*" in pattern and fnmatchcase(name, pattern)
            for pattern in (self.written_name, self.tool)
        )


@lru_cache(maxsize=4096)
def parse_tool_pattern(text: str) -> ToolPattern:
    """Parse one tool pattern.

    Never raises: a pattern that cannot be understood has `is_valid` false.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        return ToolPattern(text, text, text, is_valid=False)
    bang, name, opening, calls, closing = match.groups(default="")
    name, calls = name.rstrip(), calls.strip()
    is_server = name.startswith("mcp__") and name.count("__") == 1 and not name.endswith("*")
    return ToolPattern(
        text,
        f"{name}__*" if is_server else normalize_tool_name(name),
        name,
        "" if calls in _ALL_CALLS else calls,
        has_brackets=bool(opening),
        is_excluded=bool(bang),
        is_valid=bool(name) and bool(opening) == bool(closing),
    )


def parse_tool_patterns(texts: Iterable[str] | None) -> tuple[ToolPattern, ...]:
    """Parse the patterns of an agent; None gives an empty tuple."""
    return tuple(map(parse_tool_pattern, texts or ()))


def select_tools(names: Iterable[str], patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the names that a pattern includes and none excludes; all names if `patterns` is None.

    `bash(git:*)` includes the tool bash; `!bash(git push:*)` does not exclude it. The permission
    policy decides which calls are allowed.
    """
    if patterns is None:
        return tuple(names)
    return _select_tools(tuple(names), tuple(patterns))


@lru_cache(maxsize=256)
def _select_tools(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """See `select_tools`. The children of one answer ask the same."""
    parsed = parse_tool_patterns(patterns)
    included = [pattern for pattern in parsed if not pattern.is_excluded]
    excluded = [pattern for pattern in parsed if pattern.is_excluded and not pattern.has_brackets]
    return tuple(
        name
        for name in names
        if any(pattern.matches_tool(name) for pattern in included)
        and not any(pattern.matches_tool(name) for pattern in excluded)
    )


def list_server_patterns(tools: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a brief's tools that are about tools of servers."""
    return tuple(text for text in tools if text.startswith(("mcp__", "!mcp__")))


def narrow_server_patterns(
    granted: Iterable[str], patterns: Iterable[str] | None
) -> tuple[str, ...]:
    """Return what an agent's patterns select of granted server patterns.

    The tools of a server may not be known yet, so the result has patterns, too: what is granted
    and selected, and what is excluded of it.
    """
    granted = tuple(granted)
    if patterns is None or not granted:
        return granted
    parsed = parse_tool_patterns(patterns)
    included = [pattern for pattern in parsed if not pattern.is_excluded]
    excluded = [
        pattern.tool for pattern in parsed if pattern.is_excluded and not pattern.has_brackets
    ]
    kept: dict[str, None] = {}
    for grant in granted:
        if grant.startswith("!"):
            continue
        for pattern in included:
            if pattern.matches_tool(grant):
                kept[grant] = None
            elif fnmatchcase(pattern.tool, grant):
                kept[pattern.tool] = None
    selected = [
        grant for grant in kept if not any(fnmatchcase(grant, pattern) for pattern in excluded)
    ]
    before = [grant[1:] for grant in granted if grant.startswith("!")]
    exclusions = dict.fromkeys(
        f"!{pattern}"
        for pattern in (*before, *excluded)
        if any(fnmatchcase(pattern, grant) or fnmatchcase(grant, pattern) for grant in selected)
    )
    return (*selected, *exclusions) if selected else ()


def list_call_patterns(patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the patterns with brackets, which limit single calls.

    Leaves out `read(a.txt)` if another pattern, such as `read`, includes all calls of the tool.
    """
    return _list_call_patterns(tuple(patterns)) if patterns else ()


@lru_cache(maxsize=256)
def _list_call_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    parsed = parse_tool_patterns(patterns)
    whole = [pattern for pattern in parsed if not pattern.has_brackets and not pattern.is_excluded]
    return tuple(
        pattern.text
        for pattern in parsed
        if pattern.has_brackets
        and (pattern.is_excluded or not any(other.matches_tool(pattern.tool) for other in whole))
    )
