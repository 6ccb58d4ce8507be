"""glob: files whose path matches a pattern, the newest first."""

from __future__ import annotations

import asyncio
import os

from msgspec import Struct

from .._core.ports import FileInfo, ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolResult
from ._glob_match import compile_glob
from ._schema import build_parser, build_schema, load_description
from ._text_files import format_count

MAX_FILES = 100
"""Files of one answer."""


class Arguments(Struct, frozen=True):
    """What the model sends: the pattern is matched below `path`."""

    pattern: str
    path: str | None = None


_parse = build_parser(Arguments)


def parse(given: dict[str, object]) -> Arguments:
    """Check that the pattern stays below its folder."""
    arguments = _parse(given)
    if not arguments.pattern.strip("/ "):
        raise ValueError("pattern: is empty; use for example **/*.py")
    if ".." in arguments.pattern.split("/"):
        raise ValueError("pattern: leads up with '..'; name the folder in path")
    compile_glob(arguments.pattern)
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Find the files."""
    return await asyncio.to_thread(_glob, ctx.workspace, arguments)


def _glob(workspace: Workspace, arguments: Arguments) -> ToolResult:
    folder, pattern = _folder(workspace, arguments)
    skip = 0 if folder == "." else len(folder) + 1
    matches, deeper = compile_glob(pattern), compile_glob("**/" + pattern)
    found: list[FileInfo] = []
    hidden = 0
    for info in workspace.walk(folder):
        if matches(info.path[skip:]):
            found.append(info)
        elif deeper(info.path[skip:]):
            hidden += 1
    if not found:
        hint = f"; **/{pattern} would match {hidden:,}" if hidden else ""
        return ToolResult(
            f"(no files match {pattern}{'' if folder == '.' else ' in ' + folder}{hint})"
        )
    found.sort(key=lambda info: (-info.mtime, info.path))
    rows = [info.path for info in found[:MAX_FILES]]
    if len(found) > MAX_FILES:
        rows.append(
            f"({MAX_FILES} newest of {len(found):,} files; use a narrower pattern or a path)"
        )
    return ToolResult(
        "\n".join(rows), display=format_count(len(found), "file"), detail={"files": len(found)}
    )


def _folder(workspace: Workspace, arguments: Arguments) -> tuple[str, str]:
    """The folder to look in, and the pattern below it; an absolute pattern names its folder itself."""
    pattern = arguments.pattern
    if not os.path.isabs(pattern):
        return workspace.locate(arguments.path or "."), pattern
    names = pattern.split("/")
    plain = next(
        (n for n, name in enumerate(names) if any(mark in name for mark in "*?[{")), len(names) - 1
    )
    return workspace.locate("/".join(names[:plain]) or "/"), "/".join(names[plain:])


GLOB = Tool(
    name="glob",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    effect=Effect.PURE,
    argument_aliases={"dir_path": "path", "directory": "path"},
)
