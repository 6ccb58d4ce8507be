"""The grep tool: searches file contents for a regular expression, within a time limit."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Struct, field

from .._core.counts import count_noun
from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..errors import WorkspaceError
from ._glob_match import compile_glob
from ._ripgrep import (
    InvalidPattern,
    SearchProgress,
    SearchQuery,
    find_ripgrep,
    get_search_slot,
    search_files,
)
from ._schema import build_parser, build_schema, load_description, take_flag, take_integer
from ._search_scope import SearchScope, format_no_rows, format_rows
from ._text_files import make_error_result

MAX_SECONDS = 20.0
"""Time limit of a search."""
MAX_LINES = 250
"""Lines of one result when the model sends no head_limit."""

_LISTING_SHARE = 0.5  # of the time limit: then the files listed so far are searched
_MAX_CHARACTERS = 48_000  # of one result
_MAX_LINE_CHARACTERS = 500
_TYPES = {
    "c": "c h",
    "cpp": "cc cpp cxx hpp hh hxx h",
    "cs": "cs",
    "css": "css scss",
    "go": "go",
    "html": "html htm",
    "java": "java",
    "js": "js jsx mjs cjs",
    "json": "json",
    "kotlin": "kt kts",
    "markdown": "md mdx markdown",
    "md": "md mdx markdown",
    "php": "php",
    "py": "py pyi",
    "python": "py pyi",
    "ruby": "rb",
    "rust": "rs",
    "sh": "sh bash zsh",
    "swift": "swift",
    "toml": "toml",
    "ts": "ts tsx mts cts",
    "txt": "txt",
    "xml": "xml",
    "yaml": "yaml yml",
}


class Arguments(Struct, frozen=True):
    """The arguments.

    `glob` and `type` choose files; `head_limit` is the number of lines, 0 for as many as fit.
    """

    pattern: str
    path: str | None = None
    glob: str | None = None
    type: str | None = None
    output_mode: Literal["files_with_matches", "content", "count"] = "files_with_matches"
    ignore_case: bool = field(default=False, name="-i")
    line_numbers: bool = field(default=True, name="-n")
    before: int = field(default=0, name="-B")
    after: int = field(default=0, name="-A")
    before_and_after: int = field(default=0, name="-C")
    context: int = 0
    head_limit: int | None = None
    multiline: bool = False

    def __post_init__(self) -> None:
        """Check that there is a pattern and that no number is negative."""
        if not self.pattern:
            raise ValueError("pattern: is empty; give a regular expression")
        if "\0" in self.pattern:
            raise ValueError("pattern: contains a NUL character; leave it out")
        context = (self.before, self.after, self.before_and_after, self.context)
        if min(*context, self.head_limit or 0) < 0:
            raise ValueError("a number of lines is negative; use 0 or more")
        if self.glob:
            compile_glob(self.glob)


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Turn the options of other programs into those of this tool, or say what to do instead."""
    if arguments.pop("exclude_pattern", None):
        raise ValueError("exclude_pattern: leave it out; use grep -v in bash")
    for name in ("no_ignore", "include_ignored"):
        if take_flag(arguments, name):
            raise ValueError(f"{name}: leave it out, and name the ignored folder in path")
    if take_integer(arguments, "offset"):
        raise ValueError("offset: leave it out; narrow the search, or raise head_limit")
    mode = arguments.pop("output_mode", None)
    if "names_only" in arguments:
        mode = "files_with_matches" if take_flag(arguments, "names_only") else "content"
    if mode is None and called in _OTHER_SEARCHES:
        mode = "content"
    if mode is not None:
        arguments["output_mode"] = "count" if mode == "count_matches" else mode
    if not take_flag(arguments, "case_sensitive", called not in _OTHER_SEARCHES):
        arguments.setdefault("-i", True)
    if take_flag(arguments, "fixed_strings") and isinstance(arguments.get("pattern"), str):
        special = r"[][\\.+*?()|{}^$#&~-]"
        arguments["pattern"] = re.sub(special, r"\\\g<0>", arguments["pattern"])
    return arguments


_OTHER_SEARCHES = ("grep_search", "search_file_content")
"""Names of tools that show lines and ignore the case of letters unless they are told otherwise."""

_HIDDEN = ("type", "head_limit", "multiline", "-n", "-A", "-B", "context")
parse = build_parser(Arguments)


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Search with ripgrep."""
    rg = find_ripgrep(ctx.workspace.root)
    if not rg:
        return make_error_result("ripgrep is not installed. Search with grep in bash.")
    try:
        async with get_search_slot():
            return await search(ctx.workspace, arguments, rg=rg)
    except InvalidPattern as error:
        return make_error_result(_explain_pattern(str(error)))


def _explain_pattern(message: str) -> str:
    if "look-around" in message or "backreferences" in message:
        return (
            "pattern: look-around and back-references are not supported. "
            "Use a simpler pattern, or grep -P in bash."
        )
    return f"pattern is not a regular expression: {message[:500]}"


async def search(
    workspace: Workspace, arguments: Arguments, *, rg: str, seconds: float = MAX_SECONDS
) -> ToolResult:
    """Search the chosen files.

    Arguments:
        rg: path of ripgrep. seconds: time limit.

    Raises InvalidPattern.
    """
    local = workspace.local
    if local is None:
        return make_error_result("The files are on another machine. Search them with grep in bash.")
    now = time.monotonic()
    scope = SearchScope(workspace, now + seconds * _LISTING_SHARE)
    progress = SearchProgress(skipped=scope.skipped)
    output = MatchRows(workspace, arguments)
    files: Sequence[str] = ()
    is_timed_out = False
    try:
        async with asyncio.timeout(seconds):
            files = await asyncio.to_thread(choose_files, scope, workspace, arguments)
            query = build_query(arguments)
            records = search_files(query, local, files, progress, root=workspace.root, rg=rg)
            async with aclosing(records):
                async for record in records:
                    if not output.add(record):
                        break
                else:
                    progress.searched = len(files)
    except TimeoutError:
        is_timed_out = True
    if not scope.is_complete or is_timed_out:
        count = scope.describe_searched(progress.searched, len(files))
        remedy = "use a simpler pattern, a path or a glob"
        output.stopped = f"stopped after {seconds:g} s: {count}; {remedy}"
    elif progress.failure:
        output.stopped = f"the search program failed, so not all was searched: {progress.failure}"
    output.skipped = scope.describe_skipped()
    return output.make_result()


def build_query(arguments: Arguments) -> SearchQuery:
    """Return the query that the arguments ask for."""
    context = max(arguments.before_and_after, arguments.context)
    matches_line_ends = "\n" in arguments.pattern or r"\n" in arguments.pattern
    return SearchQuery(
        pattern=arguments.pattern,
        ignore_case=arguments.ignore_case,
        multiline=arguments.multiline or matches_line_ends,
        mode=arguments.output_mode,
        before=max(arguments.before, context),
        after=max(arguments.after, context),
    )


def choose_files(scope: SearchScope, workspace: Workspace, arguments: Arguments) -> Sequence[str]:
    """Return the files to search, sorted."""
    start = workspace.locate(arguments.path or ".")
    prefix_length = 0 if start == "." else len(start) + 1
    accepts = _make_path_filter(arguments)
    return [
        info.path
        for info in scope.walk(start)
        if accepts(info.path[prefix_length:] or os.path.basename(info.path))
    ]


def _make_path_filter(arguments: Arguments) -> Callable[[str], bool]:
    """Return a function that applies `type` and `glob` to a path below the searched folder."""
    endings: tuple[str, ...] = ("",)
    if arguments.type:
        names = _TYPES.get(arguments.type, arguments.type).split()
        endings = tuple(f".{name}" for name in names)
    if not arguments.glob:
        return lambda path: path.endswith(endings)
    pattern = arguments.glob.removeprefix("!")
    matches = compile_glob(pattern if "/" in pattern else f"**/{pattern}")
    is_negated = arguments.glob.startswith("!")
    return lambda path: path.endswith(endings) and matches(path) is not is_negated


class MatchRows:
    """The matches as the model reads them, up to the limits.

    `cut`, `stopped` and `skipped` are notes: why matches or files are missing.
    """

    def __init__(self, workspace: Workspace, arguments: Arguments) -> None:
        self.rows: list[str] = []
        self.cut = ""
        self.stopped = ""
        self.skipped = ""
        self._workspace = workspace
        self._arguments = arguments
        self._max_rows = MAX_LINES
        if arguments.head_limit is not None:
            self._max_rows = arguments.head_limit or 1_000_000
        self._room = _MAX_CHARACTERS
        self._path = ""
        self._is_binary = False
        self._needs_separator = False

    def add(self, record: bytes) -> bool:
        """Add one record; return False when no more fit."""
        name, nul, rest = record.partition(b"\0")
        if record == b"--":
            self._needs_separator = bool(self.rows)
            return True
        if not nul and self._arguments.output_mode != "files_with_matches":
            return True
        path = os.fsdecode(name)
        if path != self._path:
            self._path = path
            self._is_binary = self._check_binary(path)
        if self._is_binary:
            return True
        row = self._format_row(path, rest.decode("utf-8", "replace"))
        if len(self.rows) >= self._max_rows or self._room < len(row):
            shown = count_noun(len(self.rows), "line")
            self.cut = f"{shown} shown, there are more; narrow the search or raise head_limit"
            return False
        if self._needs_separator:
            self.rows.append("--")
            self._needs_separator = False
        self.rows.append(row)
        self._room -= len(row) + 1
        return True

    def make_result(self) -> ToolResult:
        """Return the result for the model."""
        if not self.rows:
            where = f" in {self._arguments.path}" if self._arguments.path else ""
            return format_no_rows(self.stopped, self.skipped, f"no matches{where}")
        notes = (self.cut, self.stopped, self.skipped)
        return format_rows(self.rows, notes, "line", total=len(self.rows))

    def _format_row(self, path: str, rest: str) -> str:
        if self._arguments.output_mode == "files_with_matches":
            return path
        if self._arguments.output_mode == "count":
            return f"{path}:{rest}"
        digits = len(rest) - len(rest.lstrip("0123456789"))
        number = rest[:digits]
        mark = rest[digits : digits + 1]
        text = rest[digits + 1 :]
        if len(text) > _MAX_LINE_CHARACTERS:
            text = text[:_MAX_LINE_CHARACTERS] + " [line cut]"
        if self._arguments.line_numbers:
            return f"{path}{mark}{number}{mark}{text}"
        return f"{path}{mark}{text}"

    def _check_binary(self, path: str) -> bool:
        from .text.encodings import describe_binary  # after the first request

        try:
            return bool(describe_binary(self._workspace.read(path, 0, 8_192)))
        except WorkspaceError:
            return True


GREP = Tool(
    name="grep",
    description=load_description(__file__),
    parameters=build_schema(Arguments, hidden=_HIDDEN),
    parse=parse,
    run=run,
    title_argument="pattern",
    effect=Effect.PURE,
    category=ToolCategory.READ,
    path_argument="path",
    is_search=True,
    argument_aliases={
        "dir_path": "path",
        "directory": "path",
        "include": "glob",
        "include_pattern": "glob",
        "case_insensitive": "-i",
        "before": "-B",
        "after": "-A",
        "limit": "head_limit",
        "total_max_matches": "head_limit",
    },
    ignored_arguments=frozenset(("max_matches_per_file",)),
    adapt=adapt,
)
