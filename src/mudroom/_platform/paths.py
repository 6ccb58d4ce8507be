"""Paths as models write them: with `~`, as an address, with variables, or in Windows form.

A file tool is not a shell. Taken literally, `~/notes.txt` creates a folder named `~`, and tidying
up with `rm -rf ~` then loses everything. So what has only one meaning is expanded, and the rest is
refused. A name that exists is always taken literally: `$HOME` and `~` may be file names.
White space around a path is a model's slip: it is dropped, and never becomes part of a new name.

As text, a byte of a file name that is not UTF-8 is written as \\xNN. Python represents such a byte
by half of a surrogate pair, which fits in no JSON and no request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from .patterns import compile_later

_ESCAPE = compile_later(rb"\\x([89a-f][0-9a-f]|5c(?=x(?:5cx)*[89a-f][0-9a-f]))")
_LOOKS_ESCAPED = compile_later(r"\\(?=x(?:5cx)*[89a-f][0-9a-f])")


def path_to_text(path: str) -> str:
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


_SPECIAL = compile_later(r"[~$%\\:`\0-\x1f\x7f]|^\s|\s\Z|\s/|/\s|^([\"']).*\1\Z", re.S)
_ADDRESS = compile_later(
    r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)(.*)|(file|https?):(?=/)(.*)", re.I | re.S
)
_DRIVE = compile_later(r"[A-Za-z]:[/\\]")
_VARIABLE = compile_later(
    r"\$[A-Z_][A-Z0-9_]+(?![a-z0-9])|\$\{[^}/]*\}?|\$\([^)/]*\)?|`[^`]+`"
    r"|%[A-Za-z_][A-Za-z0-9_()]*%"
)
# Only at the start of a path: web frameworks have folders such as `routes/$id`.
_LEADING_VARIABLE = compile_later(r"\$(?:env:)?[A-Za-z_]\w*(?=[/\\]|$)", re.I)
_BACKSLASHES = compile_later(r"\\+")
_ESCAPED = compile_later(r"\\([^0-9A-Za-z/])")
_QUOTED = compile_later(r"([\"'`])([^\"'`]+)\1")
_CONTROLS = compile_later(r"[\0-\x1f\x7f]")


def read_path_argument(text: str, exists: Callable[[str], bool]) -> str:
    r"""Return the path a tool's argument means. Links and `..` are left to the workspace.

    `~` and `file://` addresses are expanded. A backslash before a character that is special in
    patterns or shells is dropped if the result names a file: `app/\[id\]/page.tsx`. White
    space at both ends is dropped.

    Raises ValueError with the remedy for a variable, another address, or a Windows path; for a path
    in quotes; and for a new name that begins or ends with white space or has a control character.
    """
    if not _SPECIAL.search(text):
        return text
    trimmed = text.strip()
    for spelling in dict.fromkeys((text, _ESCAPED.sub(r"\1", text), trimmed)):
        if exists(spelling):
            # Permission rules expand "~" wherever a path begins with it.
            return f"./{spelling}" if spelling.startswith("~") else spelling
    if trimmed != text:
        return read_path_argument(trimmed, exists)
    if text.startswith("./"):
        _refuse_unseen(text, exists)
        return text
    if quoted := _QUOTED.fullmatch(text):
        raise ValueError(
            f"{text} does not exist. Leave out the quotes: {quoted[2].strip()}. "
            f"{_tell_literal(text)}"
        )
    _refuse_unseen(text, exists)
    if text.startswith("~"):
        return _expand_home(text)
    address = _ADDRESS.match(text)
    if address and not _DRIVE.match(text):
        scheme, path = address[1] or address[4], address[3] or address[5]
        return _read_address(text, scheme, address[2] or "", path)
    _refuse_foreign(text, exists)
    return text


def _expand_home(text: str) -> str:
    expanded = os.path.expanduser(text)
    if expanded == text and "/" in text:
        user = text.partition("/")[0]
        raise ValueError(
            f"{text} does not exist, and there is no user whose home folder is {user}. "
            f"{_tell_literal(text)}"
        )
    return expanded  # unchanged: "~lock.odt" is a plain name


def _read_address(text: str, scheme: str, server: str, path: str) -> str:
    if scheme.lower() != "file" or server.lower() not in ("", "localhost") or not path:
        raise ValueError(
            f"{text} is an address, not a path. Name a file of the workspace by its path, "
            "or fetch the page if you have a tool for that."
        )
    from urllib.parse import unquote

    path = unquote(path, errors="surrogateescape")
    if _DRIVE.match(path[1:]):
        path = path[1:]
        _refuse_drive(path)
    return path


def _refuse_foreign(text: str, exists: Callable[[str], bool]) -> None:
    _refuse_drive(text)
    present, new = _split_new(text, exists)
    if variable := _VARIABLE.search(new) or (None if present else _LEADING_VARIABLE.match(new)):
        raise ValueError(
            f"{text} does not exist, and variables such as {variable[0]} are not expanded here. "
            f"Write the path in full. {_tell_literal(text)}"
        )
    if "\\" in path_from_text(new):  # which reads \xNN as a byte of a name
        meant = _BACKSLASHES.sub("/", _ESCAPED.sub(r"\1", text))
        raise ValueError(
            f"{text} does not exist, and '\\' does not separate folders here. "
            f"Use {meant}. {_tell_literal(text)}"
        )


def _refuse_unseen(text: str, exists: Callable[[str], bool]) -> None:
    """Raise ValueError for a new name with something invisible in a list of files."""
    new = _split_new(text, exists)[1]
    names = [name.strip() for name in new.split("/")]
    meant = f"{text[: len(text) - len(new)]}{'/'.join(names)}"
    if _CONTROLS.search(meant):
        raise ValueError(
            f"{text!r} does not exist, and a new name may not have control characters. "
            f"Use {_CONTROLS.sub('_', meant)} or another name."
        )
    if names != new.split("/"):
        raise ValueError(
            f"{text!r} does not exist, and a new name may not begin or end with white space. "
            f"Use {meant}."
        )


def _split_new(text: str, exists: Callable[[str], bool]) -> tuple[int, str]:
    """Return how many names of a path exist as folders, and the rest of the path."""
    names = text.split("/")
    present = len(names) - 1
    while present and not exists("/".join(names[:present]) or "/"):
        present -= 1
    return present, "/".join(names[present:])


def _refuse_drive(text: str) -> None:
    if _DRIVE.match(text):
        raise ValueError(
            f"{text} is a path of Windows, and this machine has no drives. "
            "Use a path relative to the workspace, with '/' between the names."
        )


def _tell_literal(text: str) -> str:
    return "" if text.startswith("/") else f"For a file of exactly this name, write ./{text}."
