"""The glob tool: lists files whose paths match a pattern, the newest first."""

from __future__ import annotations

import asyncio
import os
import time

from msgspec import Struct

from .._core.ports import FileInfo, ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from ._glob_match import compile_glob
from ._schema import build_parser, build_schema, load_description
from ._search_scope import SearchScope, format_no_rows, format_rows

MAX_FILES = 100
"""Files in one result."""
MAX_SECONDS = 20.0
"""Time limit of a search."""


class Arguments(Struct, frozen=True):
    """The arguments: the pattern is matched below `path`."""

    pattern: str
    path: str | None = None

    def __post_init__(self) -> None:
        """Check that the pattern stays below its folder."""
        if not self.pattern.strip("/ "):
            raise ValueError("pattern: is empty; use for example **/*.py")
        if ".." in self.pattern.split("/"):
            raise ValueError("pattern: contains '..'; name the folder in path instead")
        compile_glob(self.pattern)


parse = build_parser(Arguments)


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """List the files."""
    return await asyncio.to_thread(list_matches, ctx.workspace, arguments)


def list_matches(
    workspace: Workspace, arguments: Arguments, *, seconds: float = MAX_SECONDS
) -> ToolResult:
    """List the files that match.

    Arguments:
        seconds: time limit.
    """
    folder, pattern = _split_pattern(workspace, arguments)
    skipped = 0 if folder == "." else len(folder) + 1
    matches = compile_glob(pattern)
    matches_deeper = compile_glob("**/" + pattern)
    scope = SearchScope(workspace, time.monotonic() + seconds)
    files: list[FileInfo] = []
    deeper = 0
    looked_at = 0
    for info in scope.walk(folder):
        looked_at += 1
        path = info.path[skipped:]
        if matches(path):
            files.append(info)
        elif matches_deeper(path):
            deeper += 1
    stopped = ""
    if not scope.is_complete:
        count = scope.count_files(looked_at, looked_at)
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


def _split_pattern(workspace: Workspace, arguments: Arguments) -> tuple[str, str]:
    """Return the folder to list and the pattern below it; an absolute pattern holds both."""
    pattern = arguments.pattern
    if not os.path.isabs(pattern):
        return workspace.locate(arguments.path or "."), pattern
    names = pattern.split("/")
    literal = 0
    while literal < len(names) - 1 and not any(c in names[literal] for c in "*?[{"):
        literal += 1
    folder = "/".join(names[:literal]) or "/"
    return workspace.locate(folder), "/".join(names[literal:])


GLOB = Tool(
    name="glob",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    effect=Effect.PURE,
    category=ToolCategory.READ,
    path_argument="path",
    is_search=True,
    argument_aliases={"dir_path": "path", "directory": "path"},
)
