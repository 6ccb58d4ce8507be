"""Reads untrusted text files, bounded and confined to their folder; problems name path and line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from ..._core.listings import count_noun
from ..._platform.open_beneath import find_real_path, is_beneath, open_real_path
from ..._platform.regular_files import read_regular_file

MAX_FILES = 1_000  # files listed below one folder
MAX_DEPTH = 6  # levels of folders


def read_text(path: str, boundary: str, diagnostics: FileDiagnostics) -> str | None:
    r"""Read a text file, without byte order mark, with \n at line ends.

    If that is impossible, returns None and adds an error to `diagnostics`.

    Arguments:
        boundary: real path that the file must lie beneath, links resolved; "" for anywhere.
    """
    real = find_real_path(path)
    if boundary and not is_beneath(real, boundary):
        diagnostics.add_error(1, f"a link that leads out of {boundary}")
        return None
    try:
        # The check above gives a clear message; `beneath` holds even if a link changes afterwards.
        data = read_regular_file(real, beneath=boundary)
    except (OSError, ValueError) as error:
        diagnostics.add_error(1, f"cannot be read: {getattr(error, 'strerror', None) or error}")
        return None
    return _decode(data, diagnostics)


def _decode(data: bytes, diagnostics: FileDiagnostics) -> str | None:
    nul = data.find(b"\0")
    if nul >= 0:
        diagnostics.add_error(data.count(b"\n", 0, nul) + 1, "binary, not text")
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        diagnostics.add_error(data.count(b"\n", 0, error.start) + 1, "not UTF-8")
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def find_files(
    folder: str,
    suffix: str,
    diagnostics: list[Diagnostic],
    *,
    boundary: str = "",
    recursive: bool = True,
) -> Iterator[str]:
    """Yield the sorted paths of files, or folders, whose name ends with `suffix`.

    Links to folders are not followed. Yields at most MAX_FILES files, MAX_DEPTH folders deep, and
    adds the omitted files to `diagnostics`. For the boundary see `read_text`.
    """
    real = find_real_path(folder)
    if boundary and not is_beneath(real, boundary):
        severity = Severity.WARNING if os.path.isdir(folder) else Severity.ERROR
        text = f"a link that leads out of {boundary}; its files are not used"
        diagnostics.append(Diagnostic(folder, 1, severity, text))
        return
    folders = [("", 1)]
    remaining = MAX_FILES
    while folders and remaining >= 0:
        parent, depth = folders.pop()
        path = os.path.join(folder, parent) if parent else folder
        listed = _list_folder(path, os.path.join(real, parent), boundary or real, diagnostics)
        subfolders: list[tuple[str, int]] = []
        for name, is_folder in listed:
            is_named_like_file = suffix and name.endswith(suffix)
            if is_folder and not is_named_like_file:
                subfolders.append((os.path.join(parent, name), depth + 1))
            elif name.endswith(suffix):
                remaining -= 1
                if remaining >= 0:
                    yield os.path.join(path, name)
        if recursive and depth < MAX_DEPTH:
            folders.extend(reversed(subfolders))
        elif recursive and subfolders:
            text = f"its folders are not searched: {MAX_DEPTH} levels are the limit"
            diagnostics.append(Diagnostic(path, 1, Severity.NOTE, text))
    if remaining < 0:
        text = f"more than {MAX_FILES:,} files; the others are not used"
        diagnostics.append(Diagnostic(folder, 1, Severity.WARNING, text))


def _list_folder(
    folder: str, real: str, beneath: str, diagnostics: list[Diagnostic]
) -> list[tuple[str, bool]]:
    try:
        descriptor = open_real_path(real, beneath, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as scan:
                return sorted((each.name, each.is_dir(follow_symlinks=False)) for each in scan)
        finally:
            os.close(descriptor)
    except OSError as error:
        text = f"the folder cannot be listed: {error.strerror}"
        diagnostics.append(Diagnostic(folder, 1, Severity.ERROR, text))
        return []


class Severity(StrEnum):
    """A diagnostic's meaning for its file."""

    ERROR = "error"  # the file is not used
    WARNING = "warning"  # part of the file is not used, or not as written
    NOTE = "note"  # the line is valid, but has no effect here


class Diagnostic(Struct, frozen=True):
    """A remark about a line of a file; `line` counts from 1."""

    path: str
    line: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.text}"


class FileDiagnostics:
    def __init__(self, path: str) -> None:
        self.path = path
        self.items: list[Diagnostic] = []

    def add_error(self, line: int, text: str) -> None:
        self.items.append(Diagnostic(self.path, line, Severity.ERROR, text))

    def add_warning(self, line: int, text: str) -> None:
        self.items.append(Diagnostic(self.path, line, Severity.WARNING, text))

    def add_note(self, line: int, text: str) -> None:
        self.items.append(Diagnostic(self.path, line, Severity.NOTE, text))

    @property
    def has_errors(self) -> bool:
        return any(item.severity is Severity.ERROR for item in self.items)


def join_repeated(diagnostics: Collection[Diagnostic]) -> list[tuple[Diagnostic, int]]:
    """Join equal remarks at the first one's place, each with its count."""
    first: dict[tuple[Severity, str], Diagnostic] = {}
    counts = Counter((item.severity, item.text) for item in diagnostics)
    for item in sorted(diagnostics, key=lambda item: (item.path, item.line)):
        first.setdefault((item.severity, item.text), item)
    return [(item, counts[key]) for key, item in first.items()]


def make_name_clash(path: str, first_path: str, name: str) -> Diagnostic:
    """Warn about a file not used because another has the same name."""
    text = f"not used: {first_path} has the same name {name!r} and takes precedence"
    return Diagnostic(path, 1, Severity.WARNING, text)


def count_by_severity(diagnostics: Iterable[Diagnostic]) -> str:
    """Format the counts as text, such as "1 error, 2 warnings"; "" for none."""
    severities = [item.severity for item in diagnostics]
    counts = [(severity, severities.count(severity)) for severity in Severity]
    return ", ".join(count_noun(count, severity) for severity, count in counts if count)
