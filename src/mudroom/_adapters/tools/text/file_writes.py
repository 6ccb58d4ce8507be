"""Writes of whole files, in the format that they have."""

from __future__ import annotations

from ...._core.listings import count_noun
from ...._core.ports import Workspace
from ...._core.tools import PreviewLine, ToolResult
from ....errors import WorkspaceError
from .._similar_names import find_other_form
from .._text_files import MAX_PROPOSED_BYTES, get_file_lock, make_error_result
from .encodings import MAX_INSPECTED, describe_binary, trim_sample
from .file_text import FileText, count_lines, decode_file, find_line_end, set_line_ends


def write_file(workspace: Workspace, file_path: str, content: str) -> ToolResult:
    """Replace a whole file, or make it, in the encoding and with the line ends it has."""
    path = workspace.locate(file_path)
    with get_file_lock(workspace, path):
        old = _read_old(workspace, path)
        try:
            data, note = _encode(old, content)
        except ValueError as error:
            return make_error_result(f"{path} was not changed. {error}")
        created = workspace.write(path, data)
    verb = "created" if created else "overwrote"
    lines = count_noun(count_lines(content), "line")
    if created and not path.isascii() and (other := find_other_form(workspace, path)):
        note += f"; another file looks the same, {other!a}: this is {path!a}"
    return ToolResult(f"{verb} {path} ({lines}{note})", changes=(path,))


def _read_old(workspace: Workspace, path: str) -> FileText | None:
    """Read the text to replace; None for a new file and for one that is not text."""
    try:
        data = workspace.read(path, 0, MAX_INSPECTED)
    except WorkspaceError:
        return None  # a new file; for any other problem `write` raises
    return None if describe_binary(data[:8_192]) else decode_file(trim_sample(data))


def _encode(old: FileText | None, content: str) -> tuple[bytes, str]:
    """Encode the content in the format of the old text, and add a note.

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


def propose_write(workspace: Workspace, file_path: str, content: str) -> list[PreviewLine]:
    """Show the difference between a file and its new content."""
    try:
        data = workspace.read(workspace.locate(file_path), 0, MAX_PROPOSED_BYTES)
    except WorkspaceError:
        data = b""  # a new file
    before = "" if describe_binary(data[:8_192]) else decode_file(data).shown
    from ...._projections.differences import diff_texts

    return diff_texts(set_line_ends(before, "\n"), set_line_ends(content, "\n"))
