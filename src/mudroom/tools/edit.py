"""The edit tool: replaces an exact text in a file; shows similar lines when it is not there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from ._schema import build_parser, build_schema, load_description


class Arguments(Struct, frozen=True):
    """The arguments."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False

    def __post_init__(self) -> None:
        """Check that there is something to replace, and that the replacement differs."""
        if not self.old_string:
            raise ValueError(
                "old_string: is empty; quote the text to replace, or use write for a new file"
            )
        if self.old_string == self.new_string:
            raise ValueError("new_string: is the same as old_string; nothing would change")
        try:
            self.new_string.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"new_string: character {error.start} is half of a surrogate pair, which no file "
                "can hold; write the whole character"
            ) from None


parse = build_parser(Arguments)


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Replace the text."""
    from .text.file_edits import TextEdit, edit_file  # after the first request

    edit = TextEdit(*astuple(arguments))
    return await asyncio.to_thread(edit_file, ctx.workspace, edit)


def propose(workspace: Workspace, arguments: Mapping[str, Any]) -> list[PreviewLine]:
    """Return the difference that the call would make; empty if it would fail."""
    from .text.file_edits import TextEdit, propose_edit

    return propose_edit(workspace, TextEdit(*astuple(parse(dict(arguments)))))


def get_file_key(arguments: Arguments) -> str:
    """Return the file's path, normalised without looking at the workspace."""
    return os.path.normpath(arguments.file_path)


def preview(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    """Return the difference between old_string and new_string, in whole lines where known."""
    before, after = (str(result.detail.get(side, "")) for side in ("before", "after"))
    old = f"{before}{arguments.get('old_string', '')}{after}"
    new = f"{before}{arguments.get('new_string', '')}{after}"
    from ..projections.differences import diff_texts

    return diff_texts(old, new, first_line=int(result.detail.get("line", 0)))


EDIT = Tool(
    name="edit",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    view="diff",
    effect=Effect.KEYED,
    category=ToolCategory.WRITE,
    path_argument="file_path",
    preview=preview,
    preview_lines=24,
    propose=propose,
    get_key=get_file_key,
    argument_aliases={
        "path": "file_path",
        "filePath": "file_path",
        "old_text": "old_string",
        "oldString": "old_string",
        "new_text": "new_string",
        "newString": "new_string",
        "replaceAll": "replace_all",
    },
)
