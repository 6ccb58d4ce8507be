"""read: lines of a text file with their numbers, a bounded part of it, whatever its size."""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
from typing import BinaryIO

from msgspec import Struct

from .._core.ports import ToolContext
from .._core.tools import Effect, Tool, ToolResult
from ..errors import WorkspaceError
from ._schema import build_parser, build_schema, load_description
from ._text_files import decode_text, describe_binary, detect_encoding, error_result, format_count

MAX_LINES = 2_000
"""Lines of one call where the model does not say how many."""
MAX_LINE_CHARACTERS = 2_000
"""Characters of one line."""
_CAP = 48_000  # characters of one call; the engine would cut the middle out of more than 50,000
_HEAD = 8_192
_WIDE = 16 << 20  # a file in UTF-16 or UTF-32 is read whole: this much of it
_COUNTED = 64 << 20  # the lines of a larger file are not counted to the end
_SKIPPED = 1 << 30  # bytes that are gone through to find the first line wanted
_SMALL = 40_000  # bytes of a file whose lines all fit into one call
_AT_ONCE = (
    1 << 18
)  # bytes of a file that is read on the spot: a thread of its own costs more than that takes


class Arguments(Struct, frozen=True):
    """What the model sends: `offset` is the first line, from 1; `limit` the number of lines."""

    file_path: str
    offset: int | None = None
    limit: int | None = None


class LineRange(Struct, frozen=True):
    """Some lines of a file.

    Arguments:
        lines: without their ends. first: number of the first one, from 1.
        total: lines of the file; None where they were not counted. more: whether lines follow.
        note: what the model should know about the encoding.
    """

    lines: tuple[str, ...]
    first: int
    total: int | None
    more: bool
    note: str = ""


_parse = build_parser(Arguments)


def parse(given: dict[str, object]) -> Arguments:
    """Check that the numbers are positive. An offset of 0 is taken for 1."""
    arguments = _parse(given)
    if arguments.offset is not None and arguments.offset < 0:
        raise ValueError("offset: is negative; the first line is 1")
    if arguments.limit is not None and arguments.limit < 1:
        raise ValueError("limit: is less than 1; leave it out for 2,000 lines")
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Read the lines asked for."""
    path = ctx.workspace.locate(arguments.file_path)
    try:
        descriptor = ctx.workspace.open(path)
    except WorkspaceError:
        if stat.S_ISDIR(ctx.workspace.stat(path).mode):
            return error_result(
                f"{path} is a folder. List it with glob: pattern '*', path '{path}'."
            )
        raise
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        return (
            _read(file, path, size, arguments)
            if size <= _AT_ONCE
            else await asyncio.to_thread(_read, file, path, size, arguments)
        )


def _read(file: BinaryIO, path: str, size: int, arguments: Arguments) -> ToolResult:
    head = file.read(_HEAD)
    if kind := describe_binary(head):
        return error_result(
            f"{path} is a {kind} of {size:,} bytes, not text. Look at it with a program in bash."
        )
    if not head:
        return ToolResult(f"({path} is empty)", reads=(path,))
    first, wanted = max(arguments.offset or 1, 1), arguments.limit or MAX_LINES
    if (
        size <= _SMALL
        and detect_encoding(head) == (b"", "utf-8")
        and (part := _plain_part(head + file.read(_SMALL), first, wanted))
    ):
        return _shown(path, part, first)
    file.seek(0)
    part = (
        _wide_part(file, first, wanted)
        if detect_encoding(head)[1] != "utf-8"
        else _part(file, first, wanted, size)
    )
    return _shown(path, part, first)


def _plain_part(data: bytes, first: int, wanted: int) -> LineRange | None:
    """Lines of a small file in plain UTF-8 with no line that must be cut; None for any other."""
    try:
        everything = data.decode()
    except UnicodeDecodeError:
        return None
    if "\r" in everything or "\0" in everything:
        return None
    lines = everything.removesuffix("\n").split("\n")
    if max(map(len, lines)) > MAX_LINE_CHARACTERS:
        return None
    chosen = tuple(lines[first - 1 :][:wanted])
    return LineRange(chosen, first, len(lines), first - 1 + len(chosen) < len(lines))


def _shown(path: str, part: LineRange, first: int) -> ToolResult:
    if not part.lines:
        if part.total is None:
            return error_result(
                f"{path} has more than a GiB before line {first}. Look for the place with grep, or cut it out with sed in bash."
            )
        return ToolResult(
            f"({path} has {format_count(part.total, 'line')}; offset {first} is past its end)",
            reads=(path,),
        )
    rows = [f"{number}\t{line}" for number, line in enumerate(part.lines, part.first)]
    last = part.first + len(part.lines) - 1
    notes = [part.note] if part.note else []
    if part.more:
        of = f" of {part.total:,}" if part.total is not None else ""
        notes.append(f"(lines {part.first}-{last}{of}; go on with offset={last + 1})")
    shown = f"{path}: {format_count(len(part.lines), 'line')}"
    return ToolResult(
        "\n".join([*rows, *notes]), display=shown, reads=(path,), detail={"lines": len(part.lines)}
    )


def _part(file: BinaryIO, first: int, wanted: int, size: int) -> LineRange:
    """Lines of a file in UTF-8 or something like it, read as a stream."""
    number = _skip(file, first - 1)
    if number is None:
        return LineRange((), first, None, False)
    rows: list[bytes] = []
    room = _CAP
    while len(rows) < wanted and room > 0 and (row := _line(file)):
        rows.append(row)
        room -= min(len(row), MAX_LINE_CHARACTERS) + 8
    total, more = _rest(file, number + len(rows), size)
    lines, note = _decoded(rows)
    if first == 1 and lines:
        lines = (lines[0].removeprefix("\ufeff"), *lines[1:])
    return LineRange(lines, first, total, more, note)


def _skip(file: BinaryIO, lines: int) -> int | None:
    """Go past so many lines; how many there were, or None when that takes too long."""
    passed, budget, piece = 0, _SKIPPED, b"\n"
    while passed < lines:
        before, piece = piece, file.readline(1 << 16)
        if not piece:
            return passed + (not before.endswith(b"\n"))
        passed += piece.endswith(b"\n")
        budget -= len(piece)
        if budget < 0:
            return None
    return passed


def _line(file: BinaryIO) -> bytes:
    """The next line with its end, b"" at the end of the file; of a very long one only the start, without an end."""
    row = file.readline(4 * MAX_LINE_CHARACTERS + 2)
    piece, budget = row, _SKIPPED
    while piece and not piece.endswith(b"\n") and budget > 0:
        piece = file.readline(1 << 20)
        budget -= len(piece)
    return row


def _rest(file: BinaryIO, seen: int, size: int) -> tuple[int | None, bool]:
    """Lines of the whole file, when it is small enough to count, and whether there are more than those seen."""
    if size > _COUNTED:
        return None, bool(file.read(1))
    total, last = seen, b"\n"
    while block := file.read(1 << 20):
        total += block.count(b"\n")
        last = block[-1:]
    total += last != b"\n"
    return total, total > seen


def _decoded(rows: list[bytes]) -> tuple[tuple[str, ...], str]:
    try:
        return tuple(_cut(codecs.getincrementaldecoder("utf-8")().decode(row)) for row in rows), ""
    except UnicodeDecodeError:
        return tuple(_cut(row.decode("latin-1")) for row in rows), "(not UTF-8; shown as Latin-1)"


def _cut(line: str) -> str:
    line = line.rstrip("\r\n").replace("\0", "\ufffd")
    return line if len(line) <= MAX_LINE_CHARACTERS else line[:MAX_LINE_CHARACTERS] + " [line cut]"


def _wide_part(file: BinaryIO, first: int, wanted: int) -> LineRange:
    """Lines of a file in UTF-16 or UTF-32."""
    data = file.read(_WIDE + 1)
    known = decode_text(data[:_WIDE])
    everything = known.text.splitlines()
    lines: list[str] = []
    room = _CAP
    for line in everything[first - 1 :][:wanted]:
        lines.append(_cut(line))
        room -= len(lines[-1]) + 8
        if room <= 0:
            break
    cut = len(data) > _WIDE
    more = cut or first - 1 + len(lines) < len(everything)
    return LineRange(
        tuple(lines),
        first,
        None if cut and lines else len(everything),
        more,
        f"({known.encoding.upper()})",
    )


READ = Tool(
    name="read",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    effect=Effect.PURE,
    argument_aliases={"path": "file_path", "filePath": "file_path", "absolute_path": "file_path"},
)
