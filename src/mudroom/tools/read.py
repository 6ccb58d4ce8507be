"""The read tool: numbered lines of a text file of any size, or an image."""

from __future__ import annotations

import asyncio
import codecs
import io
import stat
from functools import cache
from itertools import accumulate
from typing import BinaryIO

from msgspec import Struct

from .._core.counts import count_noun
from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..errors import WorkspaceError
from ._image_files import MAX_IMAGE_BYTES, MAX_PIXELS_PER_SIDE, is_image, parse_image
from ._schema import build_parser, build_schema, load_description
from ._similar_names import naming_similar_files
from ._text_files import make_error_result, open_stream
from .text.encodings import (
    MAX_INSPECTED,
    Encoding,
    describe_binary,
    detect_encoding,
    find_marked,
)
from .text.file_text import REPLACEMENT, FileText, decode_file, list_lines, show_text

MAX_LINES = 2_000
"""Lines of one call when the model sends no limit."""
MAX_LINE_CHARACTERS = 2_000
_MAX_ROW_BYTES = 4 * MAX_LINE_CHARACTERS + 2
_MAX_CHARACTERS = 48_000  # of one call; the engine shortens results over 50,000
_LINE_OVERHEAD = 8  # characters of a line's number, tab and end
_HEAD = 8_192
_MAX_COUNTED_BYTES = 64 << 20  # the lines of a larger file are not counted
_MAX_SKIPPED_BYTES = 1 << 30  # bytes that are skipped to find the first line
_SMALL_FILE = 40_000  # bytes of a file whose lines all fit into one call
_NO_THREAD = 1 << 16  # bytes; a smaller file is read without a thread, which is faster


class Arguments(Struct, frozen=True):
    """The arguments: `offset` is the first line, from 1; `limit` the number of lines."""

    file_path: str
    offset: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        """Check that the numbers are positive. An offset of 0 means 1."""
        if self.offset is not None and self.offset < 0:
            raise ValueError("offset: is negative; the first line is 1")
        if self.limit is not None and self.limit < 1:
            raise ValueError("limit: is less than 1; leave it out for 2,000 lines")


class LineRange(Struct, frozen=True):
    """Some lines of a file.

    Arguments:
        lines: without their ends. first: number of the first one, from 1.
        total: lines of the file; None when not counted. has_more: True when lines follow.
        note: remark on the encoding for the model.
    """

    lines: tuple[str, ...]
    first: int
    total: int | None
    has_more: bool
    note: str = ""


parse = build_parser(Arguments)


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Read the lines."""
    workspace = ctx.workspace
    path = workspace.locate(arguments.file_path)
    if workspace.local is None:
        return await asyncio.to_thread(_read_file, workspace, path, arguments)
    try:
        start = workspace.read(path, 0, _NO_THREAD + 1)
    except WorkspaceError:
        start = None  # to say why may take a while
    if start is None or len(start) > _NO_THREAD:
        return await asyncio.to_thread(_read_file, workspace, path, arguments)
    return _read(io.BytesIO(start), path, len(start), arguments)


def read_content(path: str, content: bytes, arguments: Arguments) -> ToolResult:
    """Return the lines of a content that stands in for the file at `path`."""
    return _read(io.BytesIO(content), path, len(content), arguments)


def _read_file(workspace: Workspace, path: str, arguments: Arguments) -> ToolResult:
    with naming_similar_files(workspace, path):
        info = workspace.stat(path)
    if stat.S_ISDIR(info.mode):
        return make_error_result(
            f"{path} is a folder. List it with glob: pattern '*', path '{path}'."
        )
    with open_stream(workspace, path) as file:
        return _read(file, path, info.size, arguments)


def _read(file: BinaryIO, path: str, size: int, arguments: Arguments) -> ToolResult:
    head = file.read(_HEAD)
    if is_image(head) and (result := _read_image(head, file, path, size)):
        return result
    if kind := describe_binary(head):
        return make_error_result(
            f"{path} is a {kind} of {size:,} bytes, not text. Look at it with a program in bash."
        )
    if not head:
        return ToolResult(f"({path} is empty)", reads=(path,))
    first = max(arguments.offset or 1, 1)
    count = arguments.limit or MAX_LINES
    if size <= _SMALL_FILE and not find_marked(head):
        small = _read_small_file(head + file.read(_SMALL_FILE), first, count)
        if small:
            return _format(path, small)
    file.seek(0)
    data = file.read(MAX_INSPECTED)
    if len(data) == MAX_INSPECTED:  # it may end within a character, but not within a line
        data = data[: data.rfind(b"\n") // 4 * 4]
    encoding = detect_encoding(data)
    if encoding.is_wide or (b"\r" in data and b"\n" not in data):
        is_cut = size > MAX_INSPECTED
        return _format(path, _list_lines(decode_file(data), first, count, is_cut=is_cut))
    file.seek(0)
    return _format(path, _stream_lines(file, first, count, size, encoding))


def _read_image(head: bytes, file: BinaryIO, path: str, size: int) -> ToolResult | None:
    """Return the image with a description; None if the file is not a complete image."""
    if size > MAX_IMAGE_BYTES:
        return make_error_result(
            f"{path} is an image of {size:,} bytes; an image may have at most "
            f"{MAX_IMAGE_BYTES:,} bytes. Make it smaller with a program in bash."
        )
    image = parse_image(head + file.read(MAX_IMAGE_BYTES))
    if image is None:
        return None
    pixels = f"{image.width}x{image.height} pixels"
    if max(image.width, image.height) > MAX_PIXELS_PER_SIDE:
        return make_error_result(
            f"{path} is an image of {pixels}; a side may have at most {MAX_PIXELS_PER_SIDE:,}. "
            "Make it smaller with a program in bash."
        )
    text = f"{path}: {image.media_type}, {pixels}, {size:,} bytes"
    return ToolResult(text, display=text, reads=(path,), images=(image,))


def _read_small_file(data: bytes, first: int, count: int) -> LineRange | None:
    """Return lines of a small file in plain UTF-8 without long lines; None for any other."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\r" in text or "\0" in text:
        return None
    lines = text.removesuffix("\n").split("\n")
    if len(text) > MAX_LINE_CHARACTERS and max(map(len, lines)) > MAX_LINE_CHARACTERS:
        return None
    chosen = tuple(lines[first - 1 : first - 1 + count])
    return LineRange(chosen, first, len(lines), first - 1 + len(chosen) < len(lines))


@cache
def _make_number_format() -> tuple[str, tuple[int, ...]]:
    """Return a format that numbers the first MAX_LINES lines of a file, and where each line ends.

    One format for all lines takes less time than one for each.
    """
    parts = [f"{number}\t%s\n" for number in range(1, MAX_LINES + 1)]
    return "".join(parts), (0, *accumulate(map(len, parts)))


def _number_lines(lines: tuple[str, ...], first: int) -> str:
    last = first + len(lines) - 1
    if last > MAX_LINES:
        return "\n".join([f"{number}\t{line}" for number, line in enumerate(lines, first)])
    number_format, ends = _make_number_format()
    return number_format[ends[first - 1] : ends[last] - 1] % lines


def _format(path: str, part: LineRange) -> ToolResult:
    if not part.lines and part.total is None:
        return make_error_result(
            f"{path} has more than a GiB before line {part.first}. "
            "Find the place with grep, or cut it out with sed in bash."
        )
    if not part.lines:
        lines = count_noun(part.total or 0, "line")
        return ToolResult(
            f"({path} has {lines}; offset {part.first} is past its end)", reads=(path,)
        )
    text = _number_lines(part.lines, part.first)
    if part.note:
        text += f"\n{part.note}"
    if part.has_more:
        last = part.first + len(part.lines) - 1
        total = "" if part.total is None else f" of {part.total:,}"
        text += f"\n(lines {part.first}-{last}{total}; continue with offset={last + 1})"
    return ToolResult(
        text,
        display=f"{path}: {count_noun(len(part.lines), 'line')}",
        reads=(path,),
        detail={"lines": len(part.lines)},
    )


def _stream_lines(
    file: BinaryIO, first: int, count: int, size: int, encoding: Encoding
) -> LineRange:
    """Read lines of a file of any size, in an encoding whose line end is the byte of "\\n"."""
    skipped = _skip_lines(file, first - 1)
    if skipped is None:
        return LineRange((), first, None, has_more=False)
    rows: list[bytes] = []
    room = _MAX_CHARACTERS
    while len(rows) < count and room > 0 and (row := _read_line(file)):
        rows.append(row)
        room -= min(len(row), MAX_LINE_CHARACTERS) + _LINE_OVERHEAD
    total, has_more = _count_rest(file, skipped + len(rows), size)
    if first == 1 and rows:
        rows[0] = rows[0].removeprefix(encoding.bom)
    lines, note = _decode_lines(rows, encoding)
    return LineRange(lines, first, total, has_more, note)


def _skip_lines(file: BinaryIO, count: int) -> int | None:
    """Skip lines; return how many there were, or None after too many bytes."""
    skipped = 0
    budget = _MAX_SKIPPED_BYTES
    last = b"\n"
    while skipped < count:
        piece = file.readline(1 << 16)
        if not piece:
            return skipped + (not last.endswith(b"\n"))
        last = piece
        skipped += piece.endswith(b"\n")
        budget -= len(piece)
        if budget < 0:
            return None
    return skipped


def _read_line(file: BinaryIO) -> bytes:
    """Read a line with its end; b"" at the end of the file; only the start of a very long one."""
    row = file.readline(_MAX_ROW_BYTES)
    piece = row
    budget = _MAX_SKIPPED_BYTES
    while piece and not piece.endswith(b"\n") and budget > 0:
        piece = file.readline(1 << 20)
        budget -= len(piece)
    return row


def _count_rest(file: BinaryIO, seen: int, size: int) -> tuple[int | None, bool]:
    """Return the number of lines of the file, None if it is too large, and whether any follow."""
    if size > _MAX_COUNTED_BYTES:
        return None, bool(file.read(1))
    total = seen
    last = b"\n"
    while block := file.read(1 << 20):
        total += block.count(b"\n")
        last = block[-1:]
    total += last != b"\n"
    return total, total > seen


def _decode_lines(rows: list[bytes], encoding: Encoding) -> tuple[tuple[str, ...], str]:
    """Return the lines and a note on their encoding."""
    errors = encoding.errors if encoding.codec == "utf-8" else "replace"
    make_decoder = codecs.getincrementaldecoder(encoding.codec)
    # A line that was cut may end within a character, which the decoder then leaves out.
    texts = [make_decoder(errors).decode(row, len(row) < _MAX_ROW_BYTES) for row in rows]
    lines = tuple(map(_clean_line, texts))
    notes = [encoding.note] if encoding.note else []
    if any(map(_has_foreign, texts)):
        notes.append(f"{REPLACEMENT} stands for bytes that are not text; edit keeps them")
    return lines, f"({'; '.join(notes)})" if notes else ""


def _has_foreign(text: str) -> bool:
    return not text.isascii() and show_text(text) != text


def _clean_line(line: str) -> str:
    line = show_text(line.removesuffix("\n").removesuffix("\r"))
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return line[:MAX_LINE_CHARACTERS] + " [line cut]"


def _list_lines(file: FileText, first: int, count: int, *, is_cut: bool) -> LineRange:
    """Return lines of a file whose line end is not the byte of "\\n": UTF-16, or only CR.

    `is_cut`: only the start of the file was read.
    """
    all_lines = list_lines(file.text)
    lines: list[str] = []
    room = _MAX_CHARACTERS
    for line in all_lines[first - 1 :][:count]:
        lines.append(_clean_line(line))
        room -= len(lines[-1]) + _LINE_OVERHEAD
        if room <= 0:
            break
    total = None if is_cut and lines else len(all_lines)
    has_more = is_cut or first - 1 + len(lines) < len(all_lines)
    note = f"({file.encoding.note})" if file.encoding.note else ""
    return LineRange(tuple(lines), first, total, has_more, note)


READ = Tool(
    name="read",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=parse,
    run=run,
    view="lines",
    effect=Effect.PURE,
    category=ToolCategory.READ,
    path_argument="file_path",
    argument_aliases={"path": "file_path", "filePath": "file_path", "absolute_path": "file_path"},
)
