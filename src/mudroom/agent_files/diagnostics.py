"""What is wrong, or left unused, in a file somebody wrote: always with its path and line, never an exception."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """What a finding means for the file."""

    ERROR = "error"
    """The file is not used."""
    WARNING = "warning"
    """A part of it is not used, or not as meant."""
    NOTE = "note"
    """It is understood, and has no effect here."""


class Diagnostic(Struct, frozen=True):
    """One remark about one place: `line` counts from 1."""

    path: str
    line: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.text}"


class FileDiagnostics:
    """The findings of one file, as they are made."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.items: list[Diagnostic] = []

    def add_error(self, line: int, text: str) -> None:
        """The file is not used."""
        self.items.append(Diagnostic(self.path, line, Severity.ERROR, text))

    def add_warning(self, line: int, text: str) -> None:
        """A part is not used."""
        self.items.append(Diagnostic(self.path, line, Severity.WARNING, text))

    def add_note(self, line: int, text: str) -> None:
        """Nothing is wrong."""
        self.items.append(Diagnostic(self.path, line, Severity.NOTE, text))

    @property
    def has_errors(self) -> bool:
        """Whether the file cannot be used."""
        return any(finding.severity is Severity.ERROR for finding in self.items)


def count_by_severity(findings: Iterable[Diagnostic]) -> str:
    """How many there are of each severity, in words; "" for none."""
    each = [finding.severity for finding in findings]
    counts = [(severity, each.count(severity)) for severity in Severity]
    return ", ".join(
        f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counts if count
    )
