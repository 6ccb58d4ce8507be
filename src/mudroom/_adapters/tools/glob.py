"""The glob tool: lists files whose paths match a pattern, newest first."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import time
from collections import Counter
from typing import Any

from msgspec import Struct

from ..._core.listings import count_noun
from ..._core.ports import FileInfo, ToolContext, Workspace
from ..._core.schemas import read_leniently
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ._glob_patterns import compile_glob, find_named, has_wildcard, list_names, locate_pattern
from ._schema import build_parser, build_schema, load_description, take_flag
from ._search_scope import SearchScope, format_no_rows, format_rows
from ._text_files import fold_name, naming_similar_files

MAX_FILES = 100  # files in a result
MAX_NAMES = 500  # names in a folder's list
MAX_SECONDS = 20.0  # time limit of a search


class Arguments(Struct, frozen=True):
    """`pattern` is matched below `path`; without it, the folder is listed. `ignore`: patterns."""

    pattern: str | None = None
    path: str | None = None
    ignore: list[str] = []

    def __post_init__(self) -> None:
        for ignored in self.ignore:
            compile_glob(ignored)
        if self.pattern is None:
            return
        if not self.pattern.strip("/"):
            raise ValueError("pattern: is empty; use for example **/*.py")
        if ".." in self.pattern.split("/"):
            raise ValueError("pattern: contains '..'; name the folder in path instead")
        compile_glob(self.pattern)


parse = build_parser(Arguments)


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Turn other programs' options into a pattern, or explain what to do instead."""
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
    """Make a pattern ignore case; brackets and escapes stay."""
    # The leading folders of an absolute pattern are names, not patterns.
    kept = re.match(r"/(?:[^*?\[{/]*/)*|", pattern)
    start = kept[0] if kept else ""
    parts = re.split(r"(\\.|\[[^][/]*\])", pattern[len(start) :])
    parts[::2] = [re.sub("[A-Za-z]", _list_both_cases, part) for part in parts[::2]]
    return start + "".join(parts)


def _list_both_cases(letter: re.Match[str]) -> str:
    return f"[{letter[0].lower()}{letter[0].upper()}]"


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    return await asyncio.to_thread(_list, ctx.workspace, arguments)


def _list(workspace: Workspace, arguments: Arguments) -> ToolResult:
    with naming_similar_files(workspace, workspace.locate(arguments.path or ".")):
        if arguments.pattern is None:
            return _list_folder(workspace, arguments)
        return list_matches(workspace, arguments)


def _list_folder(workspace: Workspace, arguments: Arguments) -> ToolResult:
    """List a folder's files, and its folders with the number of files below each."""
    folder = workspace.locate(arguments.path or ".")
    prefix_length = 0 if folder == "." else len(folder) + 1
    scope = SearchScope(workspace, time.monotonic() + MAX_SECONDS)
    ignored = [compile_glob(pattern.rstrip("/")) for pattern in arguments.ignore]

    def name_child(path: str) -> str:
        name, slash, _ = (path[prefix_length:] or os.path.basename(path)).partition("/")
        return name + slash

    def accepts(path: str) -> bool:
        name = name_child(path).removesuffix("/")
        return not any(matches(name) for matches in ignored)

    counts = Counter(name_child(info.path) for info in scope.walk(folder) if accepts(info.path))
    stopped = "" if scope.is_complete else f"stopped after {MAX_SECONDS:g} s: there is more"
    left_out = scope.describe_left_out(accepts)
    if not counts:
        return format_no_rows(stopped, left_out, f"no files in {folder}")
    rows = [
        f"{name} ({count_noun(count, 'file')})" if name.endswith("/") else name
        for name, count in sorted(counts.items())
    ]
    cut = f"{MAX_NAMES} of {len(rows):,} names; use a pattern" if rows[MAX_NAMES:] else ""
    return format_rows(rows[:MAX_NAMES], (cut, stopped), left_out, "name", total=len(rows))


def list_matches(
    workspace: Workspace, arguments: Arguments, *, seconds: float = MAX_SECONDS
) -> ToolResult:
    folder, pattern = locate_pattern(workspace, arguments.pattern or "**", arguments.path)
    search = _PatternSearch(folder, pattern)
    scope = SearchScope(workspace, time.monotonic() + seconds, named=list_names(pattern))
    files = [info for info in scope.walk(_find_start(workspace, folder, pattern)) if search(info)]
    stopped = ""
    if not scope.is_complete:
        count = scope.describe_searched(search.looked_at, search.looked_at)
        stopped = f"stopped after {seconds:g} s: {count}; use a path to search less"
    left_out = scope.describe_left_out(search.matches)
    if not files:
        where = "" if folder == "." else f" in {folder}"
        named = find_named(workspace, folder, pattern)
        if named and stat.S_ISDIR(workspace.stat(named).mode):
            near = f"; {named} is a folder: list it with path, without a pattern"
        else:
            near = search.describe_near_misses()
        nothing = f"no files match {pattern}{where}{near}"
        return format_no_rows(stopped, left_out, nothing)
    files.sort(key=lambda info: (-info.mtime, info.path))
    cut = ""
    if len(files) > MAX_FILES:
        cut = f"{MAX_FILES} newest of {len(files):,} files; use a narrower pattern or a path"
    rows = [info.path for info in files[:MAX_FILES]]
    return format_rows(rows, (cut, stopped), left_out, "file", total=len(files))


def _find_start(workspace: Workspace, folder: str, pattern: str) -> str:
    """Find the file named by a pattern without wildcards; if there is none, the folder."""
    if "/" not in pattern and "\\" not in pattern and not has_wildcard(pattern):
        named = find_named(workspace, folder, pattern)
        if named and stat.S_ISREG(workspace.stat(named).mode):
            return named
    return folder


class _PatternSearch:
    """A search's pattern, and its near misses."""

    def __init__(self, folder: str, pattern: str) -> None:
        self.looked_at = 0
        self._prefix_length = 0 if folder == "." else len(folder) + 1
        self._pattern = pattern
        self._matches = compile_glob(pattern)
        self._matches_deeper = compile_glob("**/" + pattern)
        self._matches_folded = compile_glob(fold_name(pattern))
        self._deeper = 0
        self._similar = ""
        self._has_matches = False

    def matches(self, path: str) -> bool:
        """Return whether a file matches, or the folder itself if it is a file."""
        return self._matches(path[self._prefix_length :] or os.path.basename(path))

    def __call__(self, info: FileInfo) -> bool:
        """Return whether a file matches, and note near misses."""
        self.looked_at += 1
        if self.matches(info.path):
            self._has_matches = True
            return True
        if not self._has_matches:
            path = info.path[self._prefix_length :]
            self._deeper += self._matches_deeper(path)
            if not self._similar and self._matches_folded(fold_name(path)):
                self._similar = info.path
        return False

    def describe_near_misses(self) -> str:
        if self._similar:
            return f"; {self._similar} differs only in case or in the form of its letters"
        return f"; **/{self._pattern} would match {self._deeper:,}" if self._deeper else ""


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
