"""Tool patterns: entries of an agent's `tools`, such as `read`, `mcp__*`, `bash(git:*)`, `!write`.

A pattern names a tool, or several with `*`; a leading `!` excludes. Text in brackets limits a
pattern to some calls of the tool. It is interpreted by the permission policy, not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from .._platform.lazy_pattern import compile_later
from .tool_names import normalize_tool_name

# Possessive quantifiers keep the match linear: patterns come from files of others.
_PATTERN = compile_later(r"(!?)\s*+([^()]*+)(?:(\()(.*?)(\)?))?", re.DOTALL)
_ALL_CALLS = ("", "*", ":*")


class ToolPattern(Struct, frozen=True):
    """One parsed tool pattern.

    Arguments:
        text: the pattern as written.
        tool: mudroom's name for the tool, or a name with `*`.
        written_name: the name as written, since a tool may really be called that.
        calls: text in the brackets, "" for all calls.
        has_brackets: true if the pattern is about individual calls.
        is_excluded: true if the pattern starts with `!`.
        is_valid: false if the name or a bracket is missing.
    """

    text: str
    tool: str
    written_name: str
    calls: str = ""
    has_brackets: bool = False
    is_excluded: bool = False
    is_valid: bool = True

    def matches_tool(self, name: str) -> bool:
        if name in (self.tool, self.written_name):
            return True
        return any(
            "*" in pattern and fnmatchcase(name, pattern)
            for pattern in (self.written_name, self.tool)
        )


@lru_cache(maxsize=4096)
def parse_tool_pattern(text: str) -> ToolPattern:
    """Parse one tool pattern.

    Never raises: `is_valid` is false for a pattern that cannot be understood.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        return ToolPattern(text, text, text, is_valid=False)
    bang, name, opening, calls, closing = match.groups(default="")
    name, calls = name.rstrip(), calls.strip()
    # `mcp__git` alone names a whole server, as in Claude Code's files.
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
    """Parse an agent's patterns; None has none."""
    return tuple(map(parse_tool_pattern, texts or ()))


def select_tools(names: Iterable[str], patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Select the names that some pattern includes and none excludes; None selects all.

    `bash(git:*)` includes the tool bash, while `!bash(git push:*)` does not exclude it: which calls
    are allowed is up to the permission policy.
    """
    if patterns is None:
        return tuple(names)
    return _select_tools(tuple(names), tuple(patterns))


# Cached because all children of one answer ask for the same selection.
@lru_cache(maxsize=256)
def _select_tools(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
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
    """Return the entries of a brief's tools that are about tools of MCP servers."""
    return tuple(text for text in tools if text.startswith(("mcp__", "!mcp__")))


def narrow_server_patterns(
    granted: Iterable[str], patterns: Iterable[str] | None
) -> tuple[str, ...]:
    """Narrow granted server patterns to what an agent's own patterns select.

    A server's tools may not be known yet, so the result consists of patterns as well: those granted
    and selected, followed by exclusions.
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
    """Return the patterns with brackets, which restrict individual calls.

    `read(a.txt)` is left out if another pattern, such as `read`, includes all calls of the tool.
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
