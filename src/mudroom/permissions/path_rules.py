"""Matches calls with rules: by what tools state about themselves, and by file paths."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .._core.tools import Tool, ToolCategory
from .._platform.paths import path_from_text, path_to_text
from .._platform.patterns import compile_later
from ..errors import UsageError
from .rules import Rule, Verdict, matches_agent, matches_pattern

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


# Links in procfs to a process's current folder and file system root. Which process is meant is
# unknown until the command runs, so they count as the workspace and "/".
_PROC_LINK = compile_later(r"/proc/(?:self|thread-self|\d+)/(?:task/\d+/)?(cwd|root)(?=/|$)")


class PathContext(Struct, frozen=True):
    """The absolute folders that relative paths and `~` refer to."""

    workspace: str
    user_home: str

    def make_absolute(self, path: str, folder: str = "") -> str:
        """Make a path of a tool call or command absolute and normalized.

        Links are not followed, except those in procfs to a process's folder and root. `folder` is
        the one in the workspace that a relative path refers to.
        """
        path = path if path.startswith("~") else os.path.join(folder, path)
        if path == "~" or path.startswith("~/"):
            path = self.user_home + path[1:]
        if path.startswith("/"):
            path = _PROC_LINK.sub(
                lambda link: self.workspace if link[1] == "cwd" else "", "/" + path.lstrip("/")
            )
        return os.path.normpath(os.path.join(self.workspace, path))

    def resolve_links(self, path: str, folder: str = "") -> tuple[str, ...]:
        """Resolve a path to its absolute form and, if it leads through links, its target's."""
        absolute = self.make_absolute(path, folder)
        paths = [absolute, os.path.realpath(absolute)]
        if "\\x" in absolute:  # how file tools spell a byte that is not UTF-8
            paths.append(path_to_text(os.path.realpath(path_from_text(absolute))))
        return tuple(dict.fromkeys(paths))

    def is_inside(self, path: str, folders: Sequence[str] = ("",)) -> bool:
        """Return whether a path and its target lie in the workspace, seen from each folder."""
        # With a link in front of it, `..` leads elsewhere than the text says.
        if ".." in path.split("/"):
            return False
        return all(
            _strip_folder(location, self.workspace) is not None
            for folder in folders
            for location in self.resolve_links(path, folder)
        )

    def is_file_inside(self, path: str) -> bool:
        """Return whether a file lies in the workspace, even if its path contains `..`."""
        real = os.path.realpath(os.path.join(self.workspace, path))
        return self.is_inside(self.make_absolute(path)) and self.is_inside(real)

    def make_relative(self, path: str, folder: str = "") -> str:
        absolute = self.make_absolute(path, folder)
        relative = _strip_folder(absolute, self.workspace)
        return absolute if relative is None else relative


def matches_file(
    rule: Rule, paths: Collection[str], context: PathContext, *, match_all: bool
) -> bool:
    """Return whether a file rule applies to a file, given by its paths: its own and its target's.

    An allow rule must match all of them. For a deny rule one match is enough, and letter case is
    ignored.
    """
    if not rule.pattern:
        return True
    results = (covers_path(rule, path, context, ignore_case=not match_all) for path in paths)
    return all(results) if match_all else any(results)


def covers_path(rule: Rule, path: str, context: PathContext, *, ignore_case: bool) -> bool:
    """Return whether a rule's pattern matches an absolute path, without following links.

    Some file systems ignore differences in case and Unicode form.
    """
    bases, pattern = _resolve_pattern(rule.pattern, rule.base, context)
    if ignore_case:
        bases = tuple(_fold_case(base) for base in bases)
        pattern = _fold_case(pattern)
        path = _fold_case(path)
    relative = next(filter(None, (_strip_folder(path, base) for base in bases)), ".")
    return relative != "." and _compile_pattern(pattern).match_file(relative)


def could_cover(rule: Rule, path: str, context: PathContext) -> bool:
    """Return whether a bash wildcard path could expand to a file that a rule matches.

    The file need not exist: it may be created before the command runs.
    """
    bases, pattern = _resolve_pattern(rule.pattern, rule.base, context)
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        # As in .gitignore, a pattern without a slash matches at any depth.
        parts.insert(0, "**")
    named = _fold_case(path).strip("/").split("/")
    for base in dict.fromkeys(bases):
        folders = _fold_case(base).strip("/").split("/") if base != "/" else []
        above = zip(folders, named, strict=False)
        is_below = len(named) > len(folders) and all(_meet(name, each) for name, each in above)
        if is_below and _parts_meet(list(map(_fold_case, parts)), named[len(folders) :]):
            return True
    return False


def _parts_meet(pattern: Sequence[str], named: Sequence[str]) -> bool:
    if not pattern:
        return True
    if not named:
        return False
    if pattern[0] == "**":
        return len(pattern) == 1 or (
            _parts_meet(pattern[1:], named) or _parts_meet(pattern, named[1:])
        )
    return _meet(pattern[0], named[0]) and _parts_meet(pattern[1:], named[1:])


@lru_cache(maxsize=4096)
def _meet(name: str, pattern: str) -> bool:
    # The second pattern is bash's, whose wildcards do not match a leading dot.
    if name.startswith(".") and pattern[:1] in ("*", "?", "["):
        return False
    first, second = map(_replace_classes, (name, pattern))
    # Both patterns are walked at once, as two automata: `reached` holds the places in the second
    # that some text matched by the first so far leads to.
    reached = {0}
    for c in first:
        reached = _step(reached, c, second)
    return len(second) in _skip_stars(reached, second)


def _replace_classes(pattern: str) -> str:
    """Widen each class to `?`, to err on the side of a match; an unclosed bracket stays."""
    return re.sub(r"\[[^\]]*+(\]?)", lambda part: "?" if part[1] else part[0], pattern)


def _step(reached: set[int], c: str, pattern: str) -> set[int]:
    places = _skip_stars(reached, pattern)
    if c == "*":
        return set(range(min(places, default=len(pattern) + 1), len(pattern) + 1))
    after = {at for at in places if pattern[at : at + 1] == "*"}
    return after | {
        at + 1
        for at in places
        if at < len(pattern) and (c == "?" or pattern[at] in ("?", c) or pattern[at] == "*")
    }


def _skip_stars(reached: set[int], pattern: str) -> set[int]:
    places = set(reached)
    for at in range(len(pattern)):
        if at in places and pattern[at] == "*":
            places.add(at + 1)
    return places


@lru_cache(maxsize=1024)
def _resolve_pattern(
    text: str, rule_folder: str, context: PathContext
) -> tuple[tuple[str, ...], str]:
    """Resolve a pattern to its base folder, with links resolved and as written, and gitignore form.

    `//x` is relative to the root of the file system, `~/x` to the home folder, and `/x` to the
    folder of the rule's settings file.
    """
    base = context.workspace
    pattern = text
    if text.startswith("//"):
        base = "/"
        pattern = text[1:]
    elif text.startswith("~/"):
        base = context.user_home
        pattern = text[1:]
    elif text.startswith("/"):
        base = rule_folder or context.workspace
    elif text.startswith("./"):
        pattern = text[1:]
    elif text.startswith("../"):
        base, name = os.path.split(os.path.normpath(os.path.join(context.workspace, text)))
        pattern = f"/{name}"
    return (os.path.realpath(base), os.path.normpath(base)), pattern


def _fold_case(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _strip_folder(path: str, folder: str) -> str | None:
    if path == folder:
        return "."
    start = folder if folder.endswith("/") else folder + "/"
    return path[len(start) :] if path.startswith(start) else None


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(
            [pattern.replace("\\", "\\\\") if pattern.endswith("\\") else pattern]
        )
    except Exception as error:
        raise UsageError(
            f"not a path pattern: {pattern!r}", remedy="Use a pattern as in .gitignore."
        ) from error


class CallMatcher:
    """Matches rules with calls.

    A rule with a path, such as `Read(./secrets/**)`, also applies to other tools that access files
    in the same way: `glob` and `grep` for `read`, `write` for `edit`.
    """

    def __init__(self, context: PathContext, tools: Mapping[str, Tool]) -> None:
        self.context = context
        self.tools = tools

    def applies(self, rule: Rule, tool: Tool) -> bool:
        if rule.names(tool.name):
            return True
        access = get_file_access(tool)
        return bool(rule.pattern) and access is not None and access is self.get_rule_access(rule)

    def get_rule_access(self, rule: Rule) -> ToolCategory | None:
        tool = self.tools.get(rule.tool)
        return get_file_access(tool) if tool else None

    def applies_to_access(self, rule: Rule, access: ToolCategory) -> bool:
        tools: Iterable[Tool] = self.tools.values()
        return any(self.applies(rule, tool) for tool in tools if get_file_access(tool) is access)

    def matches(self, rule: Rule, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        if not rule.pattern:
            return True
        if tool.is_provider_tool:
            # The provider runs the tool, so single calls are not seen here: a rule that forbids
            # some calls must forbid all, and one that allows some can allow none.
            return rule.verdict != Verdict.ALLOW
        if tool.path_argument:
            paths = self.context.resolve_links(get_call_path(tool, arguments))
            match_all = rule.verdict == Verdict.ALLOW
            return matches_file(rule, paths, self.context, match_all=match_all)
        key, colon, pattern = rule.pattern.partition(":")
        value = str(arguments.get(tool.rule_argument, ""))
        if tool.category is ToolCategory.NETWORK and key == "domain":
            return _is_on_domain(value, pattern)
        if tool.rule_argument and not colon:
            matches = matches_agent if tool.category is ToolCategory.AGENT else matches_pattern
            return matches(rule.pattern, value)
        if rule.verdict == Verdict.ALLOW or not colon:
            return False
        return matches_pattern(pattern, str(arguments.get(key, "")))


def get_file_access(tool: Tool) -> ToolCategory | None:
    return tool.category if tool.path_argument else None


def get_call_path(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return the file or folder a call works on, "" for a tool without a path."""
    if not tool.path_argument:
        return ""
    return str(arguments.get(tool.path_argument) or ".")


def _is_on_domain(url: str, domain: str) -> bool:
    """Return whether a URL's host is the domain; `*.x.com` matches every host below x.com."""
    from urllib.parse import urlsplit

    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    domain = domain.strip().lower()
    if domain.startswith("*."):
        return host.endswith(domain[1:]) and host != domain[2:]
    return host == domain
