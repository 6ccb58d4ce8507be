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


class Finding(Struct, frozen=True):
    """One remark about one place: `line` counts from 1."""

    path: str
    line: int
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.text}"


class Notes:
    """The findings of one file, as they are made."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.findings: list[Finding] = []

    def error(self, line: int, text: str) -> None:
        """The file is not used."""
        self.findings.append(Finding(self.path, line, Severity.ERROR, text))

    def warning(self, line: int, text: str) -> None:
        """A part is not used."""
        self.findings.append(Finding(self.path, line, Severity.WARNING, text))

    def note(self, line: int, text: str) -> None:
        """Nothing is wrong."""
        self.findings.append(Finding(self.path, line, Severity.NOTE, text))

    @property
    def failed(self) -> bool:
        """Whether the file cannot be used."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def counted(findings: Iterable[Finding]) -> str:
    """How many there are of each severity, in words; "" for none."""
    each = [finding.severity for finding in findings]
    counts = [(severity, each.count(severity)) for severity in Severity]
    return ", ".join(
        f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counts if count
    )
