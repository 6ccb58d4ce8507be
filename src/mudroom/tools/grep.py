"""grep: search the contents of files for a regular expression; it always ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Literal

from msgspec import Struct, field

from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolResult
from ..errors import WorkspaceError
from ._glob_match import compile_glob
from ._ripgrep import InvalidPattern, SearchQuery, find_ripgrep, search_files
from ._schema import build_parser, build_schema, load_description
from ._text_files import describe_binary, error_result, format_count, read_start

MAX_SECONDS = 20.0
"""The longest a search may take."""
MAX_LINES = 250
"""Lines of one answer where the model does not say how many."""

_CAP = 48_000
_WIDTH = 500
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
    """What the model sends. `glob` and `type` choose files; `head_limit` is the number of lines, 0 for as many as fit."""

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


_SILENT = ("type", "head_limit", "multiline", "-n", "-A", "-B", "context")
_parse = build_parser(Arguments)


def parse(given: dict[str, object]) -> Arguments:
    """Check that there is a pattern and that no number is negative."""
    arguments = _parse(given)
    if not arguments.pattern:
        raise ValueError("pattern: is empty; give a regular expression")
    if "\0" in arguments.pattern:
        raise ValueError("pattern: holds a NUL character; leave it out")
    numbers = (
        arguments.before,
        arguments.after,
        arguments.before_and_after,
        arguments.context,
        arguments.head_limit or 0,
    )
    if min(numbers) < 0:
        raise ValueError("a number of lines is negative; use 0 or more")
    if arguments.glob:
        compile_glob(arguments.glob)
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Search with rg where there is one; a pattern that rg does not know is tried with Python."""
    rg = find_ripgrep(ctx.workspace.root)
    try:
        return await search(ctx.workspace, arguments, rg=rg)
    except InvalidPattern as error:
        complaint = error
    if rg:
        try:
            return await search(ctx.workspace, arguments, rg="")
        except InvalidPattern:
            pass
    return error_result(f"pattern is not a regular expression: {str(complaint)[:500]}")


async def search(
    workspace: Workspace, arguments: Arguments, *, rg: str, seconds: float = MAX_SECONDS
) -> ToolResult:
    """Search with one of the two programs.

    Arguments:
        rg: path of rg; "" searches with Python. seconds: when to end it.

    Raises BadPattern.
    """
    answer = _Answer(workspace, arguments)
    try:
        async with asyncio.timeout(seconds):
            files = await asyncio.to_thread(
                _files, workspace, arguments, time.monotonic() + seconds
            )
            async with aclosing(
                search_files(_query(arguments), workspace, files, rg=rg)
            ) as records:
                async for record in records:
                    if not answer.add(record):
                        break
    except TimeoutError:
        answer.note = f"(ended after {seconds:g} s: not all was searched; use a simpler pattern, a path or a glob)"
        if not answer.rows:
            return error_result(answer.note)
    return answer.result()


def _query(arguments: Arguments) -> SearchQuery:
    around = max(arguments.before_and_after, arguments.context)
    return SearchQuery(
        pattern=arguments.pattern,
        ignore_case=arguments.ignore_case,
        multiline=arguments.multiline or "\n" in arguments.pattern or r"\n" in arguments.pattern,
        mode=arguments.output_mode,
        before=max(arguments.before, around),
        after=max(arguments.after, around),
    )


def _files(workspace: Workspace, arguments: Arguments, deadline: float) -> Sequence[str]:
    """The files to search, sorted. Raises TimeoutError when there are too many to list."""
    start = workspace.locate(arguments.path or ".")
    skip = 0 if start == "." else len(start) + 1
    wanted, unwanted = "**", ""
    if arguments.glob:
        pattern = arguments.glob.removeprefix("!")
        pattern = pattern if "/" in pattern else f"**/{pattern}"
        wanted, unwanted = ("**", pattern) if arguments.glob.startswith("!") else (pattern, "")
    accepts, refuses = compile_glob(wanted), compile_glob(unwanted) if unwanted else None
    endings = (
        tuple(f".{ending}" for ending in _TYPES.get(arguments.type, arguments.type).split())
        if arguments.type
        else ("",)
    )
    files: list[str] = []
    for info in workspace.walk(start):
        if time.monotonic() > deadline:
            raise TimeoutError
        below = info.path[skip:] or os.path.basename(info.path)
        if below.endswith(endings) and accepts(below) and not (refuses and refuses(below)):
            files.append(info.path)
    return files


class _Answer:
    """What was found, as the model reads it: so many lines and no more."""

    def __init__(self, workspace: Workspace, arguments: Arguments) -> None:
        self.rows: list[str] = []
        self.note = ""
        self._workspace, self._arguments = workspace, arguments
        self._limit = (
            MAX_LINES if arguments.head_limit is None else arguments.head_limit or 1_000_000
        )
        self._room = _CAP
        self._last, self._binary = "", False
        self._group = False

    def add(self, record: bytes) -> bool:
        """Take one record; whether more are wanted."""
        name, nul, rest = record.partition(b"\0")
        if record == b"--":
            self._group = bool(self.rows)
            return True
        if not nul and self._arguments.output_mode != "files_with_matches":
            return True
        path = os.fsdecode(name)
        if path != self._last:
            self._last, self._binary = path, self._is_binary(path)
        if self._binary:
            return True
        row = self._row(path, rest.decode("utf-8", "replace"))
        if len(self.rows) >= self._limit or self._room < len(row):
            self.note = f"({format_count(len(self.rows), 'line')} shown, there are more; narrow the search or raise head_limit)"
            return False
        if self._group:
            self.rows.append("--")
            self._group = False
        self.rows.append(row)
        self._room -= len(row) + 1
        return True

    def result(self) -> ToolResult:
        """The answer."""
        if not self.rows:
            return ToolResult(
                f"(no matches{' in ' + self._arguments.path if self._arguments.path else ''})"
            )
        rows = [*self.rows, self.note] if self.note else self.rows
        return ToolResult(
            "\n".join(rows),
            display=format_count(len(self.rows), "line"),
            detail={"lines": len(self.rows)},
        )

    def _row(self, path: str, rest: str) -> str:
        if self._arguments.output_mode == "files_with_matches":
            return path
        if self._arguments.output_mode == "count":
            return f"{path}:{rest}"
        digits = len(rest) - len(rest.lstrip("0123456789"))
        mark, text = rest[digits : digits + 1], rest[digits + 1 :]
        text = text if len(text) <= _WIDTH else text[:_WIDTH] + " [line cut]"
        return (
            f"{path}{mark}{rest[:digits]}{mark}{text}"
            if self._arguments.line_numbers
            else f"{path}{mark}{text}"
        )

    def _is_binary(self, path: str) -> bool:
        try:
            return bool(describe_binary(read_start(self._workspace, path, 8_192)))
        except WorkspaceError:
            return True


GREP = Tool(
    name="grep",
    description=load_description(__file__),
    parameters=build_schema(Arguments, hidden=_SILENT),
    parse=parse,
    run=run,
    effect=Effect.PURE,
    argument_aliases={"dir_path": "path", "include": "glob", "case_insensitive": "-i"},
)
