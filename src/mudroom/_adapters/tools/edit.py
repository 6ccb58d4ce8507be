"""The edit tool: replaces exact text in a file, or shows similar lines if it is not there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ..._core.ports import ToolContext, Workspace
from ..._core.schemas import decode_json
from ..._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from ._schema import build_parser, build_schema, load_description

if TYPE_CHECKING:
    from .text.file_changes import TextEdit


class Arguments(Struct, frozen=True):
    """`expected_replacements`: how often the text must be in the file."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False
    expected_replacements: int | None = None

    def __post_init__(self) -> None:
        if not self.old_string:
            raise ValueError(
                "old_string: is empty; quote the text to replace, or use write for a new file"
            )
        if self.old_string == self.new_string:
            raise ValueError("new_string: is the same as old_string; nothing would change")
        if self.expected_replacements is not None and self.expected_replacements < 1:
            raise ValueError("expected_replacements: is less than 1; leave it out for one place")
        try:
            self.new_string.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"new_string: character {error.start} is half of a surrogate pair, which no file "
                "can hold; write the whole character"
            ) from None

    def list_edits(self) -> list[TextEdit]:
        from .text.file_changes import TextEdit  # after the first request

        count = self.expected_replacements
        is_everywhere = self.replace_all or (count or 1) > 1
        return [TextEdit(self.file_path, self.old_string, self.new_string, is_everywhere, count)]


class SeveralEdits(Struct, frozen=True):
    """Arguments of other programs' tools that make several edits in a file."""

    file_path: str
    edits: list[dict[str, Any]]

    def __post_init__(self) -> None:
        if not self.edits:
            raise ValueError("edits: is empty; give old_string and new_string of each edit")
        self.list_edits()

    def list_edits(self) -> list[TextEdit]:
        listed: list[TextEdit] = []
        for number, edit in enumerate(self.edits):
            try:
                listed += _parse_one({"file_path": self.file_path, **edit}).list_edits()
            except ValueError as error:
                raise ValueError(f"edits[{number}].{error}") from None
        return listed


_parse_one = build_parser(Arguments)
_parse_several = build_parser(SeveralEdits)


def parse(sent: dict[str, Any]) -> Arguments | SeveralEdits:
    return _parse_one(sent) if sent.get("edits") is None else _parse_several(sent)


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Rename the arguments of other programs' tools; one edit needs no list."""
    edits = arguments.get("edits")
    if isinstance(edits, str) and isinstance(decoded := decode_json(edits), list | dict):
        edits = decoded
    if isinstance(edits, dict):
        edits = [cast("dict[str, Any]", edits)]
    if not isinstance(edits, list):
        return arguments
    if not edits and "old_string" in arguments:  # a strict schema demands a value
        return {name: arguments[name] for name in arguments if name != "edits"}
    if "old_string" in arguments or "new_string" in arguments:
        raise ValueError("old_string, edits: give one of them; a list can hold all edits")
    renamed = [_rename(edit) for edit in cast("list[Any]", edits)]
    for number, edit in enumerate(renamed):
        # Rules judge the call's path, so an edit must not lead to another file.
        path = edit.pop("file_path", None)
        if path is not None and arguments.setdefault("file_path", path) != path:
            raise ValueError(f"edits[{number}].file_path: is another file; edit one in each call")
    if len(renamed) == 1 and arguments.keys().isdisjoint(renamed[0]):
        return {name: arguments[name] for name in arguments if name != "edits"} | renamed[0]
    return {**arguments, "edits": renamed}


def _rename(edit: object) -> dict[str, Any]:
    if not isinstance(edit, dict):
        raise ValueError("edits: each edit is an object with old_string and new_string")
    fields = cast("dict[str, Any]", edit)
    named = {_OTHER_ARGUMENTS.get(name, name): value for name, value in fields.items()}
    return {name: value for name, value in named.items() if name not in _IGNORED}


async def run(ctx: ToolContext, arguments: Arguments | SeveralEdits) -> ToolResult:
    from .text.file_changes import edit_file  # after the first request

    return await asyncio.to_thread(edit_file, ctx.workspace, *arguments.list_edits())


def propose(workspace: Workspace, arguments: Mapping[str, Any]) -> list[PreviewLine]:
    from .text.file_changes import propose_edit

    return propose_edit(workspace, *parse(dict(arguments)).list_edits())


def preview(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    """Show the change from old_string to new_string, in whole lines where known."""
    from ..._projections.differences import diff_texts

    if isinstance(edits := arguments.get("edits"), list):
        return [
            line
            for edit in cast("list[dict[str, Any]]", edits)
            for line in diff_texts(
                str(edit.get("old_string", "")), str(edit.get("new_string", "")), first_line=0
            )
        ]
    before, after = (str(result.detail.get(side, "")) for side in ("before", "after"))
    old = f"{before}{arguments.get('old_string', '')}{after}"
    new = f"{before}{arguments.get('new_string', '')}{after}"
    return diff_texts(old, new, first_line=int(result.detail.get("line", 0)))


# Other programs' names for the arguments.
_OTHER_ARGUMENTS = {
    "path": "file_path",
    "filePath": "file_path",
    "old_text": "old_string",
    "oldText": "old_string",
    "oldString": "old_string",
    "old_str": "old_string",
    "old": "old_string",
    "before": "old_string",
    "new_text": "new_string",
    "newText": "new_string",
    "newString": "new_string",
    "new_str": "new_string",
    "new": "new_string",
    "after": "new_string",
    "replaceAll": "replace_all",
    "allow_multiple": "replace_all",
    "edit": "edits",
    "replacements": "edits",
}

_IGNORED = frozenset(("instruction", "description", "explanation"))

EDIT = Tool(
    name="edit",
    description=load_description(__file__),
    parameters=build_schema(Arguments, hidden=("expected_replacements",)),
    parse=parse,
    run=run,
    view="diff",
    effect=Effect.KEYED,
    category=ToolCategory.WRITE,
    path_argument="file_path",
    preview=preview,
    preview_lines=24,
    propose=propose,
    get_key=lambda arguments: os.path.normpath(arguments.file_path),
    argument_aliases=_OTHER_ARGUMENTS,
    ignored_arguments=_IGNORED,
    adapt=adapt,
)
