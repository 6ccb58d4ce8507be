"""Detects a file's encoding from its bytes, so that they can be written back unchanged."""

from __future__ import annotations

import codecs
import unicodedata

from msgspec import Struct

from ...._platform.patterns import compile_later
from ...._platform.regular_files import is_binary

MAX_INSPECTED = 32 << 20  # bytes that decide the encoding; the same for whole and partial reads


class Encoding(Struct, frozen=True):
    """The way a file's characters are stored.

    Arguments:
        name: as shown in results. codec: Python's name.
        bom: the byte order mark at the file's start, or b"".
        errors: how the codec keeps invalid bytes.
        is_known: False if the encoding is unclear; Latin-1 then replaces it, which keeps every
            byte, but may give wrong letters.
    """

    name: str
    codec: str
    bom: bytes = b""
    errors: str = "strict"
    is_known: bool = True

    @property
    def is_wide(self) -> bool:
        """True for UTF-16 and UTF-32, where a line end has more than one byte."""
        return self.codec.startswith(("utf-16", "utf-32"))

    @property
    def note(self) -> str:
        """A warning for a model before it trusts or writes letters; empty for UTF-8."""
        if self.codec == "utf-8":
            return ""
        if self.is_known:
            return self.name if self.is_wide else f"not UTF-8, but {self.name}"
        return f"not UTF-8; the encoding cannot be told, shown as {self.name}"


UTF_8 = Encoding("UTF-8", "utf-8", errors="surrogateescape")
UNKNOWN = Encoding("Latin-1", "latin-1", is_known=False)
_MARKED = (
    Encoding("UTF-8", "utf-8", codecs.BOM_UTF8, "surrogateescape"),
    # The mark of UTF-32 begins with that of UTF-16.
    Encoding("UTF-32-LE", "utf-32-le", codecs.BOM_UTF32_LE),
    Encoding("UTF-32-BE", "utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("UTF-16-LE", "utf-16-le", codecs.BOM_UTF16_LE, "surrogatepass"),
    Encoding("UTF-16-BE", "utf-16-be", codecs.BOM_UTF16_BE, "surrogatepass"),
)
_MARKS = tuple(one.bom for one in _MARKED)
_UNMARKED_WIDE = (
    Encoding("UTF-16-LE without a byte order mark", "utf-16-le"),
    Encoding("UTF-16-BE without a byte order mark", "utf-16-be"),
)
_LEGACY = {
    "cp1252": Encoding("Windows-1252", "cp1252"),
    "gbk": Encoding("GBK", "gbk"),
    "gb18030": Encoding("GB 18030", "gb18030"),
    "cp932": Encoding("Shift-JIS", "cp932"),
}
_SEVEN_BIT = Encoding("UTF-7", "utf-7")
_UTF_7 = compile_later(rb"\+[A-Za-z0-9+/]{3}")
_LEAST_LETTERS = 4
"""Non-ASCII letters in a UTF-7 text. None of 19,649 C and Python sources has more than three by
accident."""
_HZ = compile_later(rb"~\{(?:[!-)0-W][!-~])++~\}")
"""Common Chinese characters and punctuation; `~{~a~}` in a Lisp program is something else."""
_HEAD = 8_192
_MAGIC = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\0", "xz archive"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3", "SQLite database"),
    (b"\x00asm", "WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "Java class"),
)
_ALL_MAGIC = tuple(magic for magic, _ in _MAGIC)
# Backspace and escape occur in terminal output, which people keep as text.
_TEXT_CONTROLS = b"\b\t\n\v\f\r\x1b"
_NOT_IN_TEXT = bytes(sorted({*range(32), 127} - set(_TEXT_CONTROLS)))


def detect_encoding(data: bytes) -> Encoding:
    """Detect the encoding from all of a file's bytes, or from its first MAX_INSPECTED.

    A wrong guess would damage the file at the next edit. So an encoding counts only if it gives the
    same bytes back, and one without a mark only if its text is ordinary.
    """
    marked = find_marked(data)
    if marked is not None:
        return marked if _keeps_bytes(marked, data) else UNKNOWN
    if is_binary(data):
        return find_unmarked_wide(data) or UNKNOWN
    try:
        data.decode()
    except UnicodeDecodeError:
        return _detect_damaged_or_legacy(data)
    return UNKNOWN if _is_seven_bit(data) else UTF_8


def _is_seven_bit(data: bytes) -> bool:
    """Return whether letters are written with ASCII bytes, as in ISO 2022, HZ and UTF-7.

    UTF-8 among them would be damage.
    """
    if b"\x1b$" in data or _HZ.search(data):
        return True
    if not _UTF_7.search(data) or not data.isascii() or not _keeps_bytes(_SEVEN_BIT, data):
        return False
    # `p+size-1` in a program may also look like a letter.
    text = data.decode(_SEVEN_BIT.codec)
    return len(text) - len(text.encode("ascii", "ignore")) >= _LEAST_LETTERS


def trim_sample(data: bytes) -> bytes:
    """Cut the first MAX_INSPECTED bytes of a large file so that no character is split."""
    if len(data) < MAX_INSPECTED:
        return data
    marked = find_marked(data)
    if (marked and marked.is_wide) or is_binary(data):
        return data[: len(data) // 4 * 4]
    return data[: data.rfind(b"\n") + 1] or data


def find_marked(data: bytes) -> Encoding | None:
    if not data.startswith(_MARKS):
        return None
    return next(one for one in _MARKED if data.startswith(one.bom))


def _detect_damaged_or_legacy(data: bytes) -> Encoding:
    """Choose between UTF-8 with foreign bytes and an encoding other than Unicode."""
    text = data.decode("utf-8", "surrogateescape")
    foreign = len(text) - len(text.encode("utf-8", "ignore").decode())
    others = len(text) - len(text.encode("ascii", "ignore"))
    if others - foreign >= foreign:
        return UTF_8
    from .legacy_encodings import guess_legacy_codec  # for the rare files that need it

    encoding = _LEGACY.get(guess_legacy_codec(data))
    return encoding if encoding and _keeps_bytes(encoding, data) else UNKNOWN


def _keeps_bytes(encoding: Encoding, data: bytes) -> bool:
    body = data[len(encoding.bom) :]
    try:
        text = body.decode(encoding.codec, encoding.errors)
        return text.encode(encoding.codec, encoding.errors) == body
    except UnicodeError:
        return False


def find_unmarked_wide(data: bytes) -> Encoding | None:
    """Recognise plain text in UTF-16 without a mark; None for anything else.

    Arrays of small numbers and lists of NUL-terminated names look similar. So there must be a space
    or a line end, and only characters of ordinary text.
    """
    head = data[:_HEAD]
    if len(data) <= _HEAD and len(data) % 2:
        return None
    zeros = head[1::2].count(0), head[0::2].count(0)
    if bool(zeros[0]) == bool(zeros[1]):
        return None
    encoding = _UNMARKED_WIDE[0] if zeros[0] else _UNMARKED_WIDE[1]
    try:
        text = head.decode(encoding.codec)
    except UnicodeDecodeError as error:
        if len(head) < _HEAD or error.start < len(head) - 2:
            return None
        text = head[:-2].decode(encoding.codec)  # the head ends within a pair
    if len(text) < 4 or not set(" \n") & set(text) or not all(map(_is_ordinary, text)):
        return None
    return encoding if len(data) <= _HEAD or _keeps_bytes(encoding, data) else None


def _is_ordinary(character: str) -> bool:
    if character.isascii():
        return character.isprintable() or character in "\t\n\r\f"
    return unicodedata.category(character) not in ("Cc", "Cn", "Co", "Cs")


def describe_binary(head: bytes) -> str:
    """Name the kind of binary file with these first bytes; "" for text.

    "GIF89a is a format" is text: a format's first bytes count only together with bytes that no text
    has.
    """
    if find_marked(head):
        return ""
    if head.startswith(_ALL_MAGIC):
        for magic, kind in _MAGIC:
            if head.startswith(magic) and _has_binary_bytes(head, magic):
                return kind
    if is_binary(head) and find_unmarked_wide(head) is None:
        return "binary file"
    return ""


def _has_binary_bytes(head: bytes, magic: bytes) -> bool:
    if not magic.isascii() or magic.translate(None, _NOT_IN_TEXT) != magic:
        return True
    if head.translate(None, _NOT_IN_TEXT) != head:
        return True
    # A PDF declares itself binary with a comment of four such bytes, and may have no others.
    comment = head.split(b"\n", 2)[1:2] if magic == b"%PDF" else []
    return bool(comment) and comment[0].startswith(b"%") and min(comment[0][1:5], default=0) > 127
