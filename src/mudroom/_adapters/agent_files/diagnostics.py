"""Problems with agent files, each with its path and line. Reading a file never raises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum

from msgspec import Struct

from ..._core.listings import count_noun


class Severity(StrEnum):
    """What a diagnostic means for its file."""

    ERROR = "error"
    """The file is not used."""
    WARNING = "warning"
    """Part of the file is not used, or not as written."""
    NOTE = "note"
    """The line is valid, but has no effect here."""


class Diagnostic(Struct, frozen=True):
    """One remark about one line of a file; `line` counts from 1."""

    path: str
    line: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.text}"


class FileDiagnostics:
    """Collects the diagnostics of one file while it is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.items: list[Diagnostic] = []

    def add_error(self, line: int, text: str) -> None:
        """Say why the file is not used."""
        self.items.append(Diagnostic(self.path, line, Severity.ERROR, text))

    def add_warning(self, line: int, text: str) -> None:
        """Say why part of the file is not used."""
        self.items.append(Diagnostic(self.path, line, Severity.WARNING, text))

    def add_note(self, line: int, text: str) -> None:
        """Say that a line has no effect."""
        self.items.append(Diagnostic(self.path, line, Severity.NOTE, text))

    @property
    def has_errors(self) -> bool:
        return any(item.severity is Severity.ERROR for item in self.items)


def join_repeated(diagnostics: Collection[Diagnostic]) -> list[tuple[Diagnostic, int]]:
    """Return each different remark once, where it is made first, and how often it is made."""
    first: dict[tuple[Severity, str], Diagnostic] = {}
    counts = Counter((item.severity, item.text) for item in diagnostics)
    for item in sorted(diagnostics, key=lambda item: (item.path, item.line)):
        first.setdefault((item.severity, item.text), item)
    return [(item, counts[key]) for key, item in first.items()]


def make_name_clash(path: str, first_path: str, name: str) -> Diagnostic:
    """Warn about a file that is not used because of another one with the same name."""
    text = f"not used: {first_path} has the same name {name!r} and takes precedence"
    return Diagnostic(path, 1, Severity.WARNING, text)


def count_by_severity(diagnostics: Iterable[Diagnostic]) -> str:
    """Return the counts as text, such as "1 error, 2 warnings"; "" for none."""
    severities = [item.severity for item in diagnostics]
    counts = [(severity, severities.count(severity)) for severity in Severity]
    return ", ".join(count_noun(count, severity) for severity, count in counts if count)
