"""The edit tool: replaces an exact text in a file; shows similar lines when it is not there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from .._core.counts import count_noun
from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from .._platform.lazy_pattern import compile_later
from ..projections.engine_text import is_quoted, unquote
from ._schema import build_parser, build_schema, load_description
from ._text_files import (
    MAX_PROPOSED_BYTES,
    FileText,
    decode_text,
    describe_binary,
    get_file_lock,
    make_error_result,
)

_MAX_BYTES = 32 << 20
_LINE_NUMBER = compile_later(r"^\s*\d+\t")
_MAX_COMPARED = 3_000  # lines that are compared with a missing old_string
_MAX_QUOTED = 8
_MAX_REST = 500  # characters kept of each side of a line of which a part changed


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


parse = build_parser(Arguments)


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Replace the text."""
    return await asyncio.to_thread(_edit, ctx.workspace, arguments)


def propose(workspace: Workspace, arguments: Mapping[str, Any]) -> list[PreviewLine]:
    """Return the difference that the call would make; empty if it would fail."""
    checked = parse(dict(arguments))
    data = workspace.read(workspace.locate(checked.file_path), 0, MAX_PROPOSED_BYTES + 1)
    if len(data) > MAX_PROPOSED_BYTES or describe_binary(data[:8_192]):
        return []
    file = decode_text(data)
    for old, new in _list_interpretations(checked, file):
        if old in file.text:
            from ..projections.differences import diff_texts  # after the first request

            return diff_texts(file.text, file.text.replace(old, new))
    return []


def _edit(workspace: Workspace, arguments: Arguments) -> ToolResult:
    path = workspace.locate(arguments.file_path)
    with get_file_lock(workspace, path):
        data = workspace.read(path, 0, _MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return make_error_result(
                f"{path} is larger than {_MAX_BYTES >> 20} MiB. "
                "Change it with sed or a script in bash."
            )
        if kind := describe_binary(data[:8_192]):
            return make_error_result(
                f"{path} is a {kind}, not text. Change it with a program in bash."
            )
        file = decode_text(data)
        for old, new in _list_interpretations(arguments, file):
            if old in file.text:
                return _replace(workspace, path, file, old, new, arguments.replace_all)
    similar = _describe_similar(file.text, arguments.old_string)
    return make_error_result(f"old_string is not in {path}. {similar}")


def _list_interpretations(arguments: Arguments, file: FileText) -> Iterator[tuple[str, str]]:
    """Yield old and new text: as sent; with the file's line ends; without what models copy.

    That is the numbers that `read` puts before each line, and the marks of quoted text: the lines
    may come from a report or from an attached file.
    """
    old = arguments.old_string
    new = arguments.new_string
    if file.crlf:
        old = old.replace("\r\n", "\n")
        new = new.replace("\r\n", "\n")
    yield old, new
    if not file.crlf and "\r\n" in file.text and "\r" not in old:
        yield old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    bare_old = _strip_line_numbers(old)
    if bare_old:
        bare_new = _strip_line_numbers(new)
        yield bare_old, new if bare_new is None else bare_new
    if is_quoted(old):
        yield unquote(old), unquote(new)


def _strip_line_numbers(text: str) -> str | None:
    """Remove line numbers; None when a line has none."""
    lines = text.split("\n")
    numbered = lines[:-1] if lines[-1] == "" and len(lines) > 1 else lines
    if not all(_LINE_NUMBER.match(line) for line in numbered):
        return None
    return "\n".join(_LINE_NUMBER.sub("", line) for line in lines)


def _replace(
    workspace: Workspace, path: str, file: FileText, old: str, new: str, replace_all: bool
) -> ToolResult:
    count = file.text.count(old)
    numbers = _find_lines(file.text, old)
    if count > 1 and not replace_all:
        lines = ", ".join(str(number) for number in dict.fromkeys(numbers))
        more = ", …" if count > len(numbers) else ""
        return make_error_result(
            f"old_string is in {path} {count} times (lines {lines}{more}). "
            "Quote more lines around the one meant, or set replace_all."
        )
    try:
        data = file.encode(file.text.replace(old, new))
    except UnicodeEncodeError as error:
        characters = error.object[error.start : error.end]
        return make_error_result(
            f"new_string: {characters!r} cannot be written in {file.encoding}, "
            f"the encoding of {path}."
        )
    workspace.write(path, data)
    where = f"line {numbers[0]}" if count == 1 else f"{count} places"
    detail = {"replaced": count, "line": numbers[0], **_find_rest(file.text, old, new)}
    return ToolResult(f"edited {path} ({where})", changes=(path,), detail=detail)


def _find_rest(text: str, old: str, new: str) -> dict[str, str]:
    """Return what stands on the lines of the first match before and after it, if anything."""
    start = text.index(old)
    end = start + len(old)
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    rest = {"before": text[line_start:start]}
    if not (old.endswith("\n") and new.endswith("\n")):
        rest["after"] = text[end:] if line_end < 0 else text[end:line_end]
    return {side: part for side, part in rest.items() if 0 < len(part) <= _MAX_REST}


def _find_lines(text: str, old: str) -> list[int]:
    """Return the line numbers of the first ten matches."""
    numbers: list[int] = []
    line = 1
    previous = 0
    position = text.find(old)
    while position >= 0 and len(numbers) < 10:
        line += text.count("\n", previous, position)
        numbers.append(line)
        previous = position
        position = text.find(old, position + len(old))
    return numbers


def _describe_similar(text: str, old: str) -> str:
    """Quote the lines of the file that are most similar to old_string."""
    lines = text.split("\n")
    stripped = [line.strip() for line in lines]
    wanted = [line.strip() for line in old.strip("\n").split("\n")]
    count = len(wanted)
    if any(wanted):
        for start in range(len(stripped) - count + 1):
            if stripped[start : start + count] == wanted:
                quoted = _quote(lines, start, count)
                return f"Only white space differs; lines {start + 1}-{start + count} are:\n{quoted}"
    longest = max(range(count), key=lambda n: len(wanted[n]))
    compared = [line[:200] for line in stripped[:_MAX_COMPARED]]
    import difflib

    nearest = difflib.get_close_matches(wanted[longest][:200], compared, n=1, cutoff=0.6)
    if not nearest:
        return "Nothing in it is similar. Read the file again and quote it exactly."
    start = max(0, compared.index(nearest[0]) - longest)
    quoted = _quote(lines, start, min(count, len(lines) - start))
    return f"The nearest lines are:\n{quoted}\nQuote them exactly, without the line numbers."


def _quote(lines: Sequence[str], start: int, count: int) -> str:
    shown = lines[start : start + min(count, _MAX_QUOTED)]
    rows = [f"{number}\t{line[:500]}" for number, line in enumerate(shown, start + 1)]
    if count > _MAX_QUOTED:
        rows.append(f"(and {count_noun(count - _MAX_QUOTED, 'line')} more)")
    return "\n".join(rows)


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
