"""A text file as the tools see it, with all that it takes to write its bytes back."""

from __future__ import annotations

from msgspec import Struct

from ...._platform.patterns import compile_later
from .encodings import Encoding, detect_encoding

_NOT_SHOWN = compile_later("[\0\ud800-\udfff]")
_LINE_END = compile_later("\r\n?|\n")
# Shown in place of a character that no result can hold.
REPLACEMENT = "\ufffd"


class FileText(Struct, frozen=True):
    """The text of a file, exactly as it is stored.

    Arguments:
        text: without byte order mark, with the file's line ends. A byte that is not valid UTF-8 is
            half of a surrogate pair, as Python's "surrogateescape" writes it.
    """

    text: str
    encoding: Encoding

    @property
    def shown(self) -> str:
        """The text as `read` shows it: of the same length, with U+FFFD for other bytes."""
        return show_text(self.text)

    def encode(self, text: str) -> bytes:
        """Encode another text as this file is encoded. Raises UnicodeEncodeError."""
        encoding = self.encoding
        return encoding.bom + text.encode(encoding.codec, encoding.errors)


def decode_file(data: bytes) -> FileText:
    """Decode the whole content of a file. This never fails, and loses nothing."""
    encoding = detect_encoding(data)
    text = data[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
    return FileText(text, encoding)


def show_text(text: str) -> str:
    """Replace characters that no result can hold: NUL, foreign bytes, halves of pairs."""
    return text if text.isascii() and "\0" not in text else _NOT_SHOWN.sub(REPLACEMENT, text)


def find_line_break(text: str) -> str:
    """Find the character that ends lines: "\\r" only where there is no "\\n".

    It decides how lines are counted, the same for every tool.
    """
    return "\r" if "\r" in text and "\n" not in text else "\n"


def list_lines(text: str) -> list[str]:
    """List the lines as `read` numbers them, without their ends."""
    if not text:
        return []
    line_break = find_line_break(text)
    lines = text.removesuffix(line_break).split(line_break)
    return [line.removesuffix("\r") for line in lines] if "\r\n" in text else lines


def find_line_end(text: str) -> str | None:
    """Find the line end that all lines have; None if they differ, or if there is none.

    Example:
        find_line_end("a\\r\\nb\\r\\n") == "\\r\\n"
    """
    ends = {match[0] for match in _LINE_END.finditer(text)}
    return ends.pop() if len(ends) == 1 else None


def set_line_ends(text: str, end: str) -> str:
    return _LINE_END.sub(end, text)


def count_lines(text: str) -> int:
    """Count the lines, including a last one without an end."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))
