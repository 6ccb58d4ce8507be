r"""Paths as valid text: a byte of a file name that is not UTF-8 is written as \xNN.

Python represents such a byte by half of a surrogate pair, which fits in no JSON and no request. A
backslash before text that looks like such an escape is written as \x5c.
"""

from __future__ import annotations

import os

from .lazy_pattern import compile_later

_ESCAPE = compile_later(rb"\\x([89a-f][0-9a-f]|5c(?=x(?:5cx)*[89a-f][0-9a-f]))")
_LOOKS_ESCAPED = compile_later(r"\\(?=x(?:5cx)*[89a-f][0-9a-f])")


def path_to_text(path: str) -> str:
    """Return the text form of a file system path."""
    if path.isascii() and "\\" not in path:
        return path
    marked = _LOOKS_ESCAPED.sub(lambda _: r"\x5c", path)
    return os.fsencode(marked).decode("utf-8", "backslashreplace")


def path_from_text(text: str) -> str:
    """Return the file system path for a text.

    Escapes that `path_to_text` would not write are left alone, so that a path has one spelling.
    """
    if "\\x" not in text:
        return text
    encoded = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), os.fsencode(text))
    path = os.fsdecode(encoded)
    return path if path_to_text(path) == text else text
