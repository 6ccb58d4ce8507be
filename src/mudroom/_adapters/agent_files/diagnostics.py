"""Diagnostics for agent files: problems with their path and line; reading a file never raises."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from ..._core.listings import count_noun


class Severity(StrEnum):
    """The consequence of a diagnostic for its file."""

    ERROR = "error"
    """The file is not used."""
    WARNING = "warning"
    """A part of the file is not used, or not as written."""
    NOTE = "note"
    """The line is understood, but has no effect here."""


class Diagnostic(Struct, frozen=True):
    """One remark about one line of a file; `line` counts from 1."""

    path: str
    line: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.text}"


class FileDiagnostics:
    """The diagnostics of one file, collected while it is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.items: list[Diagnostic] = []

    def add_error(self, line: int, text: str) -> None:
        """Add a reason not to use the file."""
        self.items.append(Diagnostic(self.path, line, Severity.ERROR, text))

    def add_warning(self, line: int, text: str) -> None:
        """Add a reason not to use a part of the file."""
        self.items.append(Diagnostic(self.path, line, Severity.WARNING, text))

    def add_note(self, line: int, text: str) -> None:
        """Add a remark about a line without effect."""
        self.items.append(Diagnostic(self.path, line, Severity.NOTE, text))

    @property
    def has_errors(self) -> bool:
        """True when the file cannot be used."""
        return any(item.severity is Severity.ERROR for item in self.items)


def make_name_clash(path: str, first_path: str, name: str) -> Diagnostic:
    """Return the warning about a file whose name another file has, which takes precedence."""
    text = f"not used: {first_path} has the same name {name!r} and takes precedence"
    return Diagnostic(path, 1, Severity.WARNING, text)


def count_by_severity(diagnostics: Iterable[Diagnostic]) -> str:
    """Return the counts as text, such as "1 error, 2 warnings"; "" for none."""
    severities = [item.severity for item in diagnostics]
    counts = [(severity, severities.count(severity)) for severity in Severity]
    return ", ".join(count_noun(count, severity) for severity, count in counts if count)
