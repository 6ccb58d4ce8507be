"""glob: files whose path matches a pattern, the newest first."""

from __future__ import annotations

import asyncio
import os

from msgspec import Struct

from .._core.ports import FileInfo, ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolResult
from ._glob_match import matcher
from ._schema import described, parser, schema
from ._text_files import counted

MOST = 100
"""Files of one answer."""


class Arguments(Struct, frozen=True):
    """What the model sends: the pattern is matched below `path`."""

    pattern: str
    path: str | None = None


_parse = parser(Arguments)


def parse(given: dict[str, object]) -> Arguments:
    """Check that the pattern stays below its folder."""
    arguments = _parse(given)
    if not arguments.pattern.strip("/ "):
        raise ValueError("pattern: is empty; use for example **/*.py")
    if ".." in arguments.pattern.split("/"):
        raise ValueError("pattern: leads up with '..'; name the folder in path")
    matcher(arguments.pattern)
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Find the files."""
    return await asyncio.to_thread(_glob, ctx.workspace, arguments)


def _glob(workspace: Workspace, arguments: Arguments) -> ToolResult:
    folder, pattern = _folder(workspace, arguments)
    skip = 0 if folder == "." else len(folder) + 1
    matches, deeper = matcher(pattern), matcher("**/" + pattern)
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
    rows = [info.path for info in found[:MOST]]
    if len(found) > MOST:
        rows.append(f"({MOST} newest of {len(found):,} files; use a narrower pattern or a path)")
    return ToolResult(
        "\n".join(rows), display=counted(len(found), "file"), detail={"files": len(found)}
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
    description=described(__file__),
    parameters=schema(Arguments),
    parse=parse,
    run=run,
    effect=Effect.PURE,
    spellings={"dir_path": "path", "directory": "path"},
)
