"""The read tool: shows numbered lines of a text file of any size, or an image."""

from __future__ import annotations

import asyncio
import io
import stat
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from msgspec import Struct

from ..._core.listings import count_noun
from ..._core.ports import ToolContext, Workspace
from ..._core.schemas import decode_json
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ...errors import WorkspaceError
from ._image_files import MAX_IMAGE_BYTES, MAX_PIXELS_PER_SIDE, is_image, parse_image
from ._schema import build_parser, build_schema, load_description, take_integer
from ._text_files import make_error_result, naming_similar_files, open_stream

if TYPE_CHECKING:
    from .text.file_text import LineRange

# Used if the model sends no limit.
MAX_LINES = 2_000
_HEAD = 8_192
_OWN_NAMES = frozenset(("file_path", "offset", "limit"))
_COUNT_FROM_0 = ("read_file", "view")
_NO_THREAD = 1 << 16  # bytes; reading smaller files is faster without a thread


class Arguments(Struct, frozen=True):
    """`offset` is the first line, from 1; `limit` the number of lines."""

    file_path: str
    offset: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        """Check that the numbers are positive. Models also send 0 for the first line."""
        if self.offset is not None and self.offset < 0:
            raise ValueError("offset: is negative; the first line is 1")
        if self.limit is not None and self.limit < 1:
            raise ValueError("limit: is less than 1; leave it out for 2,000 lines")


parse = build_parser(Arguments)


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    workspace = ctx.workspace
    path = workspace.locate(arguments.file_path)
    if workspace.local is None:
        return await asyncio.to_thread(_read_file, workspace, path, arguments)
    try:
        start = workspace.read(path, 0, _NO_THREAD + 1)
    except WorkspaceError:
        start = None  # explaining why may take a while
    if start is None or len(start) > _NO_THREAD:
        return await asyncio.to_thread(_read_file, workspace, path, arguments)
    return _read(io.BytesIO(start), path, len(start), arguments)


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Turn other programs' line ranges into `offset` and `limit`."""
    if called == "read" and _OWN_NAMES.issuperset(arguments):
        return arguments
    bounds = arguments.pop("view_range", None)
    if isinstance(bounds, str):
        bounds = decode_json(bounds)
    if bounds is not None:
        first, last = _read_bounds(bounds)
    else:
        first, last = take_integer(arguments, "start_line"), take_integer(arguments, "end_line")
    if first is not None or last is not None:
        if "offset" in arguments or "limit" in arguments:
            raise ValueError("offset, limit: the lines are given already; leave them out")
        arguments |= _to_offset(first, last)
    elif called in _COUNT_FROM_0 and arguments.get("mode", "slice") == "slice":
        # Some programs with a tool of this name count lines from 0, others from 1, and our own
        # results say offset=N for line N: one extra line covers both meanings.
        offset, limit = arguments.get("offset"), arguments.get("limit")
        if isinstance(offset, int) and isinstance(limit, int) and offset > 0 and limit > 0:
            arguments["limit"] = limit + 1
    if arguments.get("mode") == "slice":
        del arguments["mode"]
    return arguments


def _read_bounds(bounds: object) -> tuple[int, int | None]:
    try:
        first, last = msgspec.convert(bounds, tuple[int, int], strict=False)
    except msgspec.ValidationError:
        raise ValueError(
            "view_range: is not [first line, last line], such as [1, 50]; -1 is the end"
        ) from None
    return first, None if last == -1 else last


def _to_offset(first: int | None, last: int | None) -> dict[str, int]:
    """Convert a range of lines, counted from 1 and both included, to offset and limit."""
    start = first or 1  # like an offset of 0
    if last is None:
        return {"offset": start}
    if last < start:
        raise ValueError(f"the last line, {last}, is before the first one, {start}")
    return {"offset": start, "limit": last - start + 1}


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
    # Imported after the first request, so as not to delay the start.
    from .text.encodings import describe_binary
    from .text.file_text import read_lines

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
    file.seek(0)
    return _format(path, read_lines(file, size, first, count))


def _read_image(head: bytes, file: BinaryIO, path: str, size: int) -> ToolResult | None:
    """Read an image and its description; None if the file is not a complete image."""
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


@cache
def _make_number_format() -> tuple[str, tuple[int, ...]]:
    """Make a format that numbers a file's first MAX_LINES lines, and the end of each in it.

    A format for all lines is faster than one for each.
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
    argument_aliases={
        "path": "file_path",
        "filePath": "file_path",
        "absolute_path": "file_path",
        "line_offset": "offset",
        "n_lines": "limit",
    },
    ignored_arguments=frozenset(("pages",)),  # of a PDF, which is refused in any case
    adapt=adapt,
)
