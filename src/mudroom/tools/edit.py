"""edit: replace an exact piece of a file, and say what differs when it is not there."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections.abc import Iterator

from msgspec import Struct

from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolResult
from ._schema import build_parser, build_schema, load_description
from ._text_files import (
    FileText,
    decode_text,
    describe_binary,
    error_result,
    file_lock,
    format_count,
    read_start,
)

_LIMIT = 32 << 20
_GUTTER = re.compile(r"^\s*\d+\t")
_COMPARED = 3_000  # lines that are compared with the one not found
_SHOWN = 8


class Arguments(Struct, frozen=True):
    """What the model sends."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False


_parse = build_parser(Arguments)


def parse(given: dict[str, object]) -> Arguments:
    """Check that there is something to replace, and something else to put there."""
    arguments = _parse(given)
    if not arguments.old_string:
        raise ValueError(
            "old_string: is empty; quote the text to replace, or use write for a new file"
        )
    if arguments.old_string == arguments.new_string:
        raise ValueError("new_string: is the same as old_string; nothing would change")
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Replace the text."""
    return await asyncio.to_thread(_edit, ctx.workspace, arguments)


def _edit(workspace: Workspace, arguments: Arguments) -> ToolResult:
    path = workspace.locate(arguments.file_path)
    with file_lock(workspace, path):
        data = read_start(workspace, path, _LIMIT + 1)
        if len(data) > _LIMIT:
            return error_result(
                f"{path} is larger than {_LIMIT >> 20} MiB. Change it with sed or a script in bash."
            )
        if kind := describe_binary(data[:8_192]):
            return error_result(f"{path} is a {kind}, not text. Change it with a program in bash.")
        file = decode_text(data)
        for old, new in _readings(arguments, file):
            if found := file.text.count(old):
                return _replaced(workspace, path, file, old, new, found, arguments.replace_all)
    return error_result(
        f"old_string is not in {path}. {_difference(file.text, arguments.old_string)}"
    )


def _readings(arguments: Arguments, file: FileText) -> Iterator[tuple[str, str]]:
    """What the model may have meant: its words; with the file's line ends; without the numbers that `read` puts before lines."""
    old, new = arguments.old_string, arguments.new_string
    if file.crlf:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    yield old, new
    if not file.crlf and "\r\n" in file.text and "\r" not in old:
        yield old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    bare = _without_gutter(old)
    if bare is not None and bare:
        yield bare, new if (plain := _without_gutter(new)) is None else plain


def _without_gutter(text: str) -> str | None:
    """The text without line numbers; None when not every line has one."""
    rows = text.split("\n")
    whole = rows[:-1] if rows[-1] == "" and len(rows) > 1 else rows
    if not all(_GUTTER.match(row) for row in whole):
        return None
    return "\n".join(_GUTTER.sub("", row) for row in rows)


def _replaced(
    workspace: Workspace,
    path: str,
    file: FileText,
    old: str,
    new: str,
    found: int,
    everywhere: bool,
) -> ToolResult:
    numbers = _places(file.text, old)
    if found > 1 and not everywhere:
        places = ", ".join(str(number) for number in dict.fromkeys(numbers)) + (
            ", …" if found > len(numbers) else ""
        )
        return error_result(
            f"old_string is in {path} {found} times (lines {places}). Quote more lines around the one meant, or set replace_all."
        )
    try:
        data = file.encode(file.text.replace(old, new))
    except UnicodeEncodeError as error:
        return error_result(
            f"new_string: {error.object[error.start : error.end]!r} cannot be written in {file.encoding}, the encoding of {path}."
        )
    workspace.replace(path, data)
    where = f"line {numbers[0]}" if found == 1 else f"{found} places"
    return ToolResult(f"edited {path} ({where})", changes=(path,), detail={"replaced": found})


def _places(text: str, old: str) -> list[int]:
    """Line numbers of the first ten places."""
    numbers: list[int] = []
    at, line, past = text.find(old), 1, 0
    while at >= 0 and len(numbers) < 10:
        line += text.count("\n", past, at)
        numbers.append(line)
        past, at = at, text.find(old, at + len(old))
    return numbers


def _difference(text: str, old: str) -> str:
    """What the file has where the model thought old_string was."""
    rows, wanted = text.split("\n"), old.strip("\n").split("\n")
    bare, sought = [row.strip() for row in rows], [row.strip() for row in wanted]
    if any(sought):
        for at in range(len(bare) - len(sought) + 1):
            if bare[at : at + len(sought)] == sought:
                return f"Only white space differs; lines {at + 1}-{at + len(sought)} are:\n{_quoted(rows, at, len(sought))}"
    longest = max(range(len(sought)), key=lambda n: len(sought[n]))
    near = difflib.get_close_matches(
        sought[longest][:200], [row[:200] for row in bare[:_COMPARED]], n=1, cutoff=0.6
    )
    if not near:
        return "Nothing in it is like it. Read the file again and quote it exactly."
    at = max(0, next(n for n, row in enumerate(bare) if row[:200] == near[0]) - longest)
    return f"The nearest lines are:\n{_quoted(rows, at, min(len(wanted), len(rows) - at))}\nQuote them exactly, without the line numbers."


def _quoted(rows: list[str], at: int, number: int) -> str:
    shown = [
        f"{n}\t{row[:500]}" for n, row in enumerate(rows[at : at + min(number, _SHOWN)], at + 1)
    ]
    return "\n".join(
        [*shown, f"(and {format_count(number - _SHOWN, 'line')} more)"]
        if number > _SHOWN
        else shown
    )


def key(arguments: Arguments) -> str:
    """The file, as far as it can be told without the workspace."""
    return os.path.normpath(arguments.file_path)


EDIT = Tool(
    name="edit",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    effect=Effect.KEYED,
    key=key,
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
