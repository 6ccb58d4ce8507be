"""Edits and writes files: reads them, changes them in their own format, and tells the model."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...._core.listings import count_noun
from ...._core.ports import Workspace
from ...._core.tools import PreviewLine, ToolResult
from ....errors import WorkspaceError
from .._text_files import (
    MAX_PROPOSED_BYTES,
    find_other_form,
    get_file_lock,
    make_error_result,
    naming_similar_files,
)
from .edits import Replacement, apply_replacements, find_replacements, find_unknown_letters
from .encodings import MAX_INSPECTED, describe_binary, trim_sample
from .file_text import (
    FileText,
    count_lines,
    decode_file,
    find_line_break,
    find_line_end,
    list_lines,
    set_line_ends,
)

_MAX_COMPARED = 3_000  # lines to compare with a missing old_string
_MAX_QUOTED = 8
_MAX_REST = 500  # characters to keep on each side of a change within a line


class TextEdit(Struct, frozen=True):
    """An edit requested by a model: replaces `old` with `new`, once or everywhere.

    `expected` is how often `old` must be in the file; None means once, or any number of times with
    `replace_all`.
    """

    file_path: str
    old: str
    new: str
    replace_all: bool = False
    expected: int | None = None


def propose_edit(workspace: Workspace, *edits: TextEdit) -> list[PreviewLine]:
    """Show the difference that edits of a file would make; empty if they would fail."""
    path = workspace.locate(edits[0].file_path)
    data = workspace.read(path, 0, MAX_PROPOSED_BYTES + 1)
    if len(data) > MAX_PROPOSED_BYTES or describe_binary(data[:8_192]):
        return []
    before = after = decode_file(data)
    for edit in edits:
        try:
            replacements = _find_replacements(after, edit)
        except ValueError:
            return []
        if not replacements:
            return []
        after = _apply(after, replacements)
    from ...._projections.differences import diff_texts

    return diff_texts(set_line_ends(before.shown, "\n"), set_line_ends(after.shown, "\n"))


def edit_file(workspace: Workspace, *edits: TextEdit) -> ToolResult:
    """Make all edits of a file, or none; each applies to the text left by the one before."""
    path = workspace.locate(edits[0].file_path)
    with get_file_lock(workspace, path):
        with naming_similar_files(workspace, path):
            data = workspace.read(path, 0, MAX_INSPECTED + 1)
        if len(data) > MAX_INSPECTED:
            return make_error_result(
                f"{path} is larger than {MAX_INSPECTED >> 20} MiB. "
                "Change it with sed or a script in bash."
            )
        if kind := describe_binary(data[:8_192]):
            return make_error_result(
                f"{path} is a {kind}, not text. Change it with a program in bash."
            )
        file = after = decode_file(data)
        changed = data
        made: list[Sequence[Replacement]] = []
        for number, edit in enumerate(edits):
            which = f"edits[{number}]: " if len(edits) > 1 else ""
            try:
                replacements = _find_replacements(after, edit)
                if not replacements:
                    similar = _describe_similar(list_lines(after.shown), edit.old)
                    where = f"{which}old_string is not in {path}."
                    return make_error_result(f"{where} {similar}{_describe_earlier(number)}")
                changed = _encode(after, replacements)
            except ValueError as error:
                return make_error_result(f"{path} was not changed. {which}{error}")
            after = _apply(after, replacements)
            made.append(replacements)
        if changed == data:
            return make_error_result(
                f"{path} was not changed: old_string and new_string differ only in line ends or "
                "line numbers, which edit keeps. Convert line ends with a program in bash."
            )
        workspace.write(path, changed)
    return _describe_edits(path, file, made)


def _find_replacements(file: FileText, edit: TextEdit) -> list[Replacement]:
    found = find_replacements(file, edit.old, edit.new, replace_all=edit.replace_all)
    if found and edit.expected is not None and len(found) != edit.expected:
        raise ValueError(
            f"old_string is in the file {len(found)} times, not {edit.expected} as "
            "expected_replacements says. Quote more lines around those meant, or set replace_all."
        )
    return found


def _apply(file: FileText, replacements: Sequence[Replacement]) -> FileText:
    return replace(file, text=apply_replacements(file.text, replacements))


def _describe_earlier(number: int) -> str:
    """Explain where a missing text was looked for: earlier edits are made first."""
    if not number:
        return ""
    return " No edit was made. Each edit is looked for in the text that the edits before it leave."


def _encode(file: FileText, replacements: Sequence[Replacement]) -> bytes:
    encoding = file.encoding
    if not encoding.is_known:
        for one in replacements:
            if letters := find_unknown_letters(file.text, one.start, one.end, one.text):
                raise ValueError(
                    f"new_string: {letters!r} cannot be written, because the encoding of the file "
                    "cannot be told. Keep to ASCII and leave other letters whole, or convert the "
                    "file to UTF-8 first (iconv in bash)."
                )
    try:
        return file.encode(apply_replacements(file.text, replacements))
    except UnicodeEncodeError as error:
        characters = error.object[error.start : error.end]
        raise ValueError(
            f"new_string: {characters!r} cannot be written in {encoding.name}, the encoding of "
            "the file. Use other characters, or convert the file to UTF-8 first (iconv in bash)."
        ) from None


def _describe_edits(path: str, file: FileText, made: Sequence[Sequence[Replacement]]) -> ToolResult:
    first = made[0][0]
    line = file.text.count(find_line_break(file.text), 0, first.start) + 1
    count = sum(map(len, made))
    where = f"line {line}" if count == 1 else f"{count} places"
    detail = {"replaced": count, "line": line, **_find_rest(file.shown, first)}
    return ToolResult(f"edited {path} ({where})", changes=(path,), detail=detail)


def _find_rest(text: str, first: Replacement) -> dict[str, str]:
    """Find the rest of the first place's lines, before and after it."""
    line_start = text.rfind("\n", 0, first.start) + 1
    line_end = text.find("\n", first.end)
    rest = {"before": text[line_start : first.start]}
    if not (text[: first.end].endswith("\n") and first.text.endswith("\n")):
        rest["after"] = text[first.end :] if line_end < 0 else text[first.end : line_end]
    return {side: part for side, part in rest.items() if 0 < len(part) <= _MAX_REST}


def _describe_similar(lines: Sequence[str], old: str) -> str:
    stripped = [line.strip() for line in lines]
    wanted = [line.strip() for line in set_line_ends(old, "\n").strip("\n").split("\n")]
    count = len(wanted)
    if any(wanted):
        body = "\n".join(["", *stripped, ""])
        position = body.find("\n".join(["", *wanted, ""]))
        if position >= 0:
            start = body.count("\n", 0, position)
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


def write_file(workspace: Workspace, file_path: str, content: str) -> ToolResult:
    """Replace or create a whole file, keeping its encoding and line ends."""
    path = workspace.locate(file_path)
    with get_file_lock(workspace, path):
        old = _read_old(workspace, path)
        try:
            data, note = _encode_content(old, content)
        except ValueError as error:
            return make_error_result(f"{path} was not changed. {error}")
        created = workspace.write(path, data)
    verb = "created" if created else "overwrote"
    lines = count_noun(count_lines(content), "line")
    if created and not path.isascii() and (other := find_other_form(workspace, path)):
        note += f"; another file looks the same, {other!a}: this is {path!a}"
    return ToolResult(f"{verb} {path} ({lines}{note})", changes=(path,))


def _read_old(workspace: Workspace, path: str) -> FileText | None:
    """Read the text to replace; None for a new file or one that is not text."""
    try:
        data = workspace.read(path, 0, MAX_INSPECTED)
    except WorkspaceError:
        return None  # a new file; for any other problem `write` raises
    return None if describe_binary(data[:8_192]) else decode_file(trim_sample(data))


def _encode_content(old: FileText | None, content: str) -> tuple[bytes, str]:
    """Encode the content in the old text's format, with a note.

    The note names a kept encoding other than UTF-8, or a change of encoding.
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


def propose_write(workspace: Workspace, file_path: str, content: str) -> list[PreviewLine]:
    try:
        data = workspace.read(workspace.locate(file_path), 0, MAX_PROPOSED_BYTES)
    except WorkspaceError:
        data = b""  # a new file
    before = "" if describe_binary(data[:8_192]) else decode_file(data).shown
    from ...._projections.differences import diff_texts

    return diff_texts(set_line_ends(before, "\n"), set_line_ends(content, "\n"))
