"""The glob tool: lists files whose paths match a pattern, the newest first."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from typing import Any

from msgspec import Struct

from .._core.counts import count_noun
from .._core.ports import FileInfo, ToolContext, Workspace
from .._core.schemas.lenient import read_leniently
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from ._glob_match import compile_glob
from ._schema import build_parser, build_schema, load_description, take_flag
from ._search_scope import SearchScope, format_no_rows, format_rows

MAX_FILES = 100
"""Files in one result."""
MAX_NAMES = 500
"""Names in the list of a folder."""
MAX_SECONDS = 20.0
"""Time limit of a search."""


class Arguments(Struct, frozen=True):
    """The arguments: the pattern is matched below `path`; without one, the folder is listed.

    `ignore` has patterns of files and folders to leave out.
    """

    pattern: str | None = None
    path: str | None = None
    ignore: list[str] = []

    def __post_init__(self) -> None:
        """Check that the pattern stays below its folder."""
        for ignored in self.ignore:
            compile_glob(ignored)
        if self.pattern is None:
            return
        if not self.pattern.strip("/ "):
            raise ValueError("pattern: is empty; use for example **/*.py")
        if ".." in self.pattern.split("/"):
            raise ValueError("pattern: contains '..'; name the folder in path instead")
        compile_glob(self.pattern)


parse = build_parser(Arguments)


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Turn the options of other programs into a pattern, or say what to do instead."""
    options = read_leniently({"type": "object"}, arguments.pop("file_filtering_options", None))
    filters: dict[str, Any] = options if isinstance(options, dict) else {}
    for given in (dict(filters), arguments):
        if not take_flag(given, "respect_git_ignore", True):
            raise ValueError("respect_git_ignore: leave it out; name the ignored folder in path")
    pattern = arguments.get("pattern")
    if not take_flag(arguments, "case_sensitive", True) and isinstance(pattern, str):
        arguments["pattern"] = _match_any_case(pattern)
    return arguments


def _match_any_case(pattern: str) -> str:
    """Return a pattern that matches letters of either case; letters in brackets stay."""
    # The folders that an absolute pattern begins with are names, not patterns.
    kept = re.match(r"/(?:[^*?\[{/]*/)*|", pattern)
    start = kept[0] if kept else ""
    parts = re.split(r"(\[[^][/]*\])", pattern[len(start) :])
    parts[::2] = [re.sub("[A-Za-z]", _list_both_cases, part) for part in parts[::2]]
    return start + "".join(parts)


def _list_both_cases(letter: re.Match[str]) -> str:
    return f"[{letter[0].lower()}{letter[0].upper()}]"


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """List the files."""
    if arguments.pattern is None:
        return await asyncio.to_thread(_list_folder, ctx.workspace, arguments)
    return await asyncio.to_thread(list_matches, ctx.workspace, arguments)


def _list_folder(workspace: Workspace, arguments: Arguments) -> ToolResult:
    """List the files in a folder, and its folders with the number of files below each."""
    folder = workspace.locate(arguments.path or ".")
    prefix_length = 0 if folder == "." else len(folder) + 1
    scope = SearchScope(workspace, time.monotonic() + MAX_SECONDS)
    ignored = [compile_glob(pattern.rstrip("/")) for pattern in arguments.ignore]
    counts: Counter[str] = Counter()
    for info in scope.walk(folder):
        name, slash, _ = info.path[prefix_length:].partition("/")
        if not any(matches(name) for matches in ignored):
            counts[name + slash] += 1
    stopped = "" if scope.is_complete else f"stopped after {MAX_SECONDS:g} s: there is more"
    if not counts:
        return format_no_rows(stopped, scope.describe_skipped(), f"no files in {folder}")
    rows = [
        f"{name} ({count_noun(count, 'file')})" if name.endswith("/") else name
        for name, count in sorted(counts.items())
    ]
    cut = f"{MAX_NAMES} of {len(rows):,} names; use a pattern" if rows[MAX_NAMES:] else ""
    notes = (cut, stopped, scope.describe_skipped())
    return format_rows(rows[:MAX_NAMES], notes, "name", total=len(rows))


def list_matches(
    workspace: Workspace, arguments: Arguments, *, seconds: float = MAX_SECONDS
) -> ToolResult:
    """List the files that match.

    Arguments:
        seconds: time limit.
    """
    folder, pattern = _split_pattern(workspace, arguments.pattern or "**", arguments.path)
    prefix_length = 0 if folder == "." else len(folder) + 1
    matches = compile_glob(pattern)
    matches_deeper = compile_glob("**/" + pattern)
    scope = SearchScope(workspace, time.monotonic() + seconds)
    files: list[FileInfo] = []
    deeper = 0
    looked_at = 0
    for info in scope.walk(folder):
        looked_at += 1
        path = info.path[prefix_length:]
        if matches(path):
            files.append(info)
        elif matches_deeper(path):
            deeper += 1
    stopped = ""
    if not scope.is_complete:
        count = scope.describe_searched(looked_at, looked_at)
        stopped = f"stopped after {seconds:g} s: {count}; use a path to search less"
    if not files:
        where = "" if folder == "." else f" in {folder}"
        hint = f"; **/{pattern} would match {deeper:,}" if deeper else ""
        nothing = f"no files match {pattern}{where}{hint}"
        return format_no_rows(stopped, scope.describe_skipped(), nothing)
    files.sort(key=lambda info: (-info.mtime, info.path))
    cut = ""
    if len(files) > MAX_FILES:
        cut = f"{MAX_FILES} newest of {len(files):,} files; use a narrower pattern or a path"
    return format_rows(
        [info.path for info in files[:MAX_FILES]],
        [cut, stopped, scope.describe_skipped()],
        "file",
        total=len(files),
    )


def _split_pattern(workspace: Workspace, pattern: str, path: str | None) -> tuple[str, str]:
    """Return the folder to list and the pattern below it; an absolute pattern holds both."""
    if not os.path.isabs(pattern):
        return workspace.locate(path or "."), pattern
    names = pattern.split("/")
    literal = 0
    while literal < len(names) - 1 and not any(c in names[literal] for c in "*?[{"):
        literal += 1
    folder = "/".join(names[:literal]) or "/"
    return workspace.locate(folder), "/".join(names[literal:])


GLOB = Tool(
    name="glob",
    description=load_description(__file__),
    parameters=build_schema(Arguments, hidden=("ignore",)),
    parse=parse,
    run=run,
    title_argument="pattern",
    effect=Effect.PURE,
    category=ToolCategory.READ,
    path_argument="path",
    is_search=True,
    argument_aliases={"dir_path": "path", "directory": "path", "folder": "path"},
    ignored_arguments=frozenset(("respect_gemini_ignore", "include_dirs")),
    adapt=adapt,
)
