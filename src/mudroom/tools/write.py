"""The write tool: replaces a whole file and keeps its encoding, line ends and mode."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from .._core.counts import count_noun
from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from ..errors import WorkspaceError
from ._schema import build_parser, build_schema, load_description
from ._similar_names import find_other_form
from ._text_files import MAX_PROPOSED_BYTES, get_file_lock, make_error_result
from .text.encodings import MAX_INSPECTED, describe_binary
from .text.file_text import FileText, count_lines, decode_file, find_line_end, set_line_ends


class Arguments(Struct, frozen=True):
    """The arguments."""

    file_path: str
    content: str


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Write the file."""
    return await asyncio.to_thread(_write, ctx.workspace, arguments)


def _write(workspace: Workspace, arguments: Arguments) -> ToolResult:
    path = workspace.locate(arguments.file_path)
    with get_file_lock(workspace, path):
        old = _read_old(workspace, path)
        try:
            data, note = _encode(old, arguments.content)
        except ValueError as error:
            return make_error_result(f"{path} was not changed. {error}")
        created = workspace.write(path, data)
    verb = "created" if created else "overwrote"
    lines = count_noun(count_lines(arguments.content), "line")
    if created and not path.isascii() and (other := find_other_form(workspace, path)):
        note += f"; another file looks the same, {other!a}: this is {path!a}"
    return ToolResult(f"{verb} {path} ({lines}{note})", changes=(path,))


def _read_old(workspace: Workspace, path: str) -> FileText | None:
    """Return the text that is replaced; None for a new file and for one that is not text."""
    try:
        data = workspace.read(path, 0, MAX_INSPECTED)
    except WorkspaceError:
        return None  # a new file; for any other problem `write` raises
    if len(data) == MAX_INSPECTED:
        data = data[: data.rfind(b"\n") // 4 * 4]
    return None if describe_binary(data[:8_192]) else decode_file(data)


def _encode(old: FileText | None, content: str) -> tuple[bytes, str]:
    """Return the bytes of the new content in the format of the old one, and a note on it.

    The note names an encoding other than UTF-8 that was kept, or the change of an encoding.
    Raises ValueError with a text for the model.
    """
    try:
        plain = content.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"content: character {error.start} is half of a surrogate pair, "
            "which no file can hold. Write the whole character."
        ) from None
    if old is None:
        return plain, ""
    end = find_line_end(old.text)
    if end is not None and end != "\n":
        content = set_line_ends(content, end)
    encoding = old.encoding
    if encoding.bom:
        content = content.removeprefix("\ufeff")
    if not encoding.is_known:
        if not content.isascii():
            raise ValueError(
                "content: has letters outside ASCII, and the encoding of the file cannot be told. "
                "Convert the file to UTF-8 first (iconv in bash), or write another file."
            )
        return content.encode(), ""
    try:
        data = old.encode(content)
    except UnicodeEncodeError as error:
        characters = error.object[error.start : error.end]
        changed = f", now in UTF-8: {encoding.name}, as the file was, has no {characters!r}"
        return content.encode(), changed
    return data, f", in {encoding.name} as before" if encoding.note and old.text else ""


def propose(workspace: Workspace, arguments: Mapping[str, Any]) -> list[PreviewLine]:
    """Return the difference between the file and the new content."""
    content = str(arguments.get("content", ""))
    try:
        data = workspace.read(workspace.locate(str(arguments["file_path"])), 0, MAX_PROPOSED_BYTES)
    except WorkspaceError:
        data = b""  # a new file
    before = "" if describe_binary(data[:8_192]) else decode_file(data).shown
    from ..projections.differences import diff_texts  # after the first request

    return diff_texts(set_line_ends(before, "\n"), set_line_ends(content, "\n"))


def get_file_key(arguments: Arguments) -> str:
    """Return the file's path, normalised without looking at the workspace."""
    return os.path.normpath(arguments.file_path)


def preview(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    """Return the content as added lines."""
    return [("+", line) for line in str(arguments.get("content", "")).splitlines()]


WRITE = Tool(
    name="write",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=build_parser(Arguments),
    run=run,
    view="content",
    effect=Effect.KEYED,
    category=ToolCategory.WRITE,
    path_argument="file_path",
    preview=preview,
    preview_lines=8,
    propose=propose,
    get_key=get_file_key,
    argument_aliases={
        "path": "file_path",
        "filePath": "file_path",
        "text": "content",
        "contents": "content",
    },
)
