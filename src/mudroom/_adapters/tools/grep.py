"""The grep tool: searches file contents for a regular expression, within a time limit."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Literal
from unicodedata import normalize

from msgspec import Struct, field

from ..._core.listings import count_noun
from ..._core.ports import ToolContext, Workspace
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._platform.patterns import compile_later
from ..._platform.time_limits import time_limit
from ._glob_patterns import compile_glob, find_named, list_names, read_pattern
from ._ripgrep import (
    InvalidPattern,
    SearchProgress,
    SearchQuery,
    find_ripgrep,
    get_search_slot,
    search_files,
)
from ._schema import build_parser, build_schema, load_description, take_flag, take_integer
from ._search_scope import (
    PathFilter,
    SearchScope,
    describe_paths,
    format_no_rows,
    format_rows,
)
from ._text_files import make_error_result, naming_similar_files

MAX_SECONDS = 20.0  # time limit of a search
MAX_LINES = 250  # lines of a result if the model sends no head_limit
_LISTING_SHARE = 0.5  # of the time limit, after which the files listed so far are searched
_MAX_CHARACTERS = 48_000  # of a result
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
    """`glob` and `type` choose files; `head_limit` is the number of lines, 0 for as many as fit."""

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
    """Turn other programs' options into this tool's, or explain what to do instead."""
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
"""Names of tools that by default show lines and ignore case."""

_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a"
_PATTERN_PART = compile_later(rf"\\.|\[\^?\]?|[\u1100-\u11ff]+|\w[{_MARKS}]+|.", re.S)
_HIDDEN = ("type", "head_limit", "multiline", "-n", "-A", "-B", "context")
parse = build_parser(Arguments)


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
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
    local = workspace.local
    if local is None:
        return make_error_result("The files are on another machine. Search them with grep in bash.")
    choice = await asyncio.to_thread(FileChoice, workspace, arguments)
    scope = SearchScope(workspace, time.monotonic() + seconds * _LISTING_SHARE, named=choice.named)
    progress = SearchProgress()
    output = MatchRows(arguments)
    files: Sequence[str] = ()
    is_timed_out = False
    try:
        async with time_limit(seconds):
            files = await asyncio.to_thread(choice.list_files, scope)
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
    scope.skipped += progress.unreadable
    left_out = await asyncio.to_thread(scope.describe_left_out, choice.accepts)
    if not arguments.pattern.isascii():
        progress.unknown = [path for path in progress.unknown if path not in output.files]
    left_out += _describe_unsearched(progress, arguments.pattern)
    if not output.rows and not files and not output.stopped and not choice.accepts_all:
        left_out.insert(0, choice.describe_no_files())
    return output.make_result(left_out, has_searched=progress.opened > 0)


def _describe_unsearched(progress: SearchProgress, pattern: str) -> list[str]:
    """Name chosen files that were not searched, or not with certainty."""
    reasons = [
        describe_paths("binary file", progress.binary),
        describe_paths(
            "file too large to decode", progress.too_large, plural="files too large to decode"
        ),
    ]
    if not pattern.isascii():
        what = "in an encoding that cannot be told"
        reasons.append(describe_paths(f"file {what}", progress.unknown, plural=f"files {what}"))
    return [reason for reason in reasons if reason]


def build_query(arguments: Arguments) -> SearchQuery:
    context = max(arguments.before_and_after, arguments.context)
    matches_line_ends = "\n" in arguments.pattern or r"\n" in arguments.pattern
    return SearchQuery(
        pattern=_match_same_text(arguments.pattern),
        ignore_case=arguments.ignore_case,
        multiline=arguments.multiline or matches_line_ends,
        mode=arguments.output_mode,
        before=max(arguments.before, context),
        after=max(arguments.after, context),
    )


def _match_same_text(pattern: str) -> str:
    """Let a pattern match the same text in other bytes, which look alike in results.

    A line feed also matches CRLF, because `read` shows both as the end of a line. An accented
    letter matches composed and decomposed (NFC and NFD). In a class, each stays one character.
    """
    if pattern.isascii() and "\n" not in pattern and r"\n" not in pattern:
        return pattern
    parts: list[str] = []
    depth = 0  # of classes
    for part in _PATTERN_PART.findall(pattern):
        if part.startswith("["):
            depth += 1
        elif part == "]":
            depth = max(0, depth - 1)
        elif not depth and part in ("\n", r"\n"):
            part = r"(?:\r?\n)"
        elif not depth and not part.isascii():
            forms = dict.fromkeys((part, normalize("NFC", part), normalize("NFD", part)))
            part = f"(?:{'|'.join(forms)})" if len(forms) > 1 else part
        parts.append(part)
    return "".join(parts)


class FileChoice:
    """The files chosen for a search.

    Attributes:
        named: names spelled out in the glob.

    Raises WorkspaceError for a path or glob that leads outside the workspace.
    """

    def __init__(self, workspace: Workspace, arguments: Arguments) -> None:
        self.named: set[str] = set()
        self.accepts_all = not arguments.glob and not arguments.type
        self._workspace = workspace
        self._arguments = arguments
        self._start = workspace.locate(arguments.path or ".")
        prefix_length = 0 if self._start == "." else len(self._start) + 1
        endings: tuple[str, ...] = ("",)
        if arguments.type:
            names = _TYPES.get(arguments.type, arguments.type).split()
            endings = tuple(f".{name}" for name in names)
        matches = self._compile_glob(arguments.glob) if arguments.glob else None

        def accepts(path: str) -> bool:
            below = path[prefix_length:] or os.path.basename(path)
            return below.endswith(endings) and (matches is None or matches(below))

        self.accepts: PathFilter = accepts

    def list_files(self, scope: SearchScope) -> Sequence[str]:
        with naming_similar_files(self._workspace, self._start):
            return [info.path for info in scope.walk(self._start) if self.accepts(info.path)]

    def describe_no_files(self) -> str:
        kind = f"the type {self._arguments.type}" if self._arguments.type else ""
        return f"no files match {' and '.join(filter(None, (self._arguments.glob, kind)))}"

    def _compile_glob(self, glob: str) -> PathFilter:
        """Compile a glob. If it names a file, it is never a negation."""
        pattern = read_pattern(self._workspace, self._start, glob)
        is_negated = pattern.startswith("!") and not find_named(
            self._workspace, self._start, pattern
        )
        pattern = pattern[is_negated:]
        if not is_negated:
            self.named = list_names(pattern)
        matches = compile_glob(pattern)
        matches_deeper = matches if "/" in pattern else compile_glob(f"**/{pattern}")
        return lambda path: (matches(path) or matches_deeper(path)) is not is_negated


class MatchRows:
    """The matches as shown to the model, up to the limits.

    `files` have matches. The notes `cut` and `stopped` explain why matches or files are missing.
    """

    def __init__(self, arguments: Arguments) -> None:
        self.rows: list[str] = []
        self.files: set[str] = set()
        self.cut = ""
        self.stopped = ""
        self._arguments = arguments
        self._max_rows = MAX_LINES
        if arguments.head_limit is not None:
            self._max_rows = arguments.head_limit or 1_000_000
        self._room = _MAX_CHARACTERS
        self._needs_separator = False

    def add(self, record: bytes) -> bool:
        """Add a record; return False if no more fit."""
        name, nul, rest = record.partition(b"\0")
        if record == b"--" and self._arguments.output_mode == "content":
            self._needs_separator = bool(self.rows)
            return True
        if not nul and self._arguments.output_mode != "files_with_matches":
            return True
        path = os.fsdecode(name)
        self.files.add(path)
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

    def make_result(self, left_out: Sequence[str] = (), *, has_searched: bool = True) -> ToolResult:
        if not self.rows:
            where = f" in {self._arguments.path}" if self._arguments.path else ""
            nothing = f"no matches{where}"
            return format_no_rows(self.stopped, left_out, nothing, has_searched=has_searched)
        notes = (self.cut, self.stopped)
        return format_rows(self.rows, notes, left_out, "line", total=len(self.rows))

    def _format_row(self, path: str, rest: str) -> str:
        if self._arguments.output_mode == "files_with_matches":
            return path
        if self._arguments.output_mode == "count":
            return f"{path}:{rest}"
        digits = len(rest) - len(rest.lstrip("0123456789"))
        number = rest[:digits]
        mark = rest[digits : digits + 1]
        text = rest[digits + 1 :]
        if self._arguments.line_numbers:
            return f"{path}{mark}{number}{mark}{text}"
        return f"{path}{mark}{text}"


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
