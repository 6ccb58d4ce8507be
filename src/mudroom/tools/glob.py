"""The glob tool: lists files whose paths match a pattern, the newest first."""

from __future__ import annotations

import asyncio
import os

from msgspec import Struct

from .._core.ports import FileInfo, ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from ._glob_match import compile_glob
from ._schema import build_parser, build_schema, load_description
from ._text_files import format_count

MAX_FILES = 100
"""Files in one result."""


class Arguments(Struct, frozen=True):
    """The arguments: the pattern is matched below `path`."""

    pattern: str
    path: str | None = None


_parse = build_parser(Arguments)


def parse(sent: dict[str, object]) -> Arguments:
    """Check that the pattern stays below its folder."""
    arguments = _parse(sent)
    if not arguments.pattern.strip("/ "):
        raise ValueError("pattern: is empty; use for example **/*.py")
    if ".." in arguments.pattern.split("/"):
        raise ValueError("pattern: contains '..'; name the folder in path instead")
    compile_glob(arguments.pattern)
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """List the files."""
    return await asyncio.to_thread(_glob, ctx.workspace, arguments)


def _glob(workspace: Workspace, arguments: Arguments) -> ToolResult:
    folder, pattern = _split_pattern(workspace, arguments)
    skipped = 0 if folder == "." else len(folder) + 1
    matches = compile_glob(pattern)
    matches_deeper = compile_glob("**/" + pattern)
    files: list[FileInfo] = []
    deeper = 0
    for info in workspace.walk(folder):
        path = info.path[skipped:]
        if matches(path):
            files.append(info)
        elif matches_deeper(path):
            deeper += 1
    if not files:
        where = "" if folder == "." else f" in {folder}"
        hint = f"; **/{pattern} would match {deeper:,}" if deeper else ""
        return ToolResult(f"(no files match {pattern}{where}{hint})")
    files.sort(key=lambda info: (-info.mtime, info.path))
    rows = [info.path for info in files[:MAX_FILES]]
    if len(files) > MAX_FILES:
        total = f"{len(files):,}"
        rows.append(f"({MAX_FILES} newest of {total} files; use a narrower pattern or a path)")
    return ToolResult(
        "\n".join(rows), display=format_count(len(files), "file"), detail={"files": len(files)}
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
