"""Configuration files of several programs: their locations, and checked access to fields."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..._platform.patterns import compile_later
from ..._platform.regular_files import MAX_BYTES, is_missing, read_regular_file

# This is for `~/.claude.json`, which contains more than settings.
MAX_STATE_BYTES = 64 << 20

# An unclosed string or comment matches up to the end of the text. If it did not match at all, each
# of its quotes would be tried as a beginning.
_STRING = r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)'
_COMMENT = compile_later(rf"({_STRING})|//[^\n]*+|/\*.*?\*/|(/\*.*)", re.DOTALL)
_LAST_COMMA = compile_later(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_SECRET_NAME = compile_later(r"key|token|secret|passw|credential|auth", re.IGNORECASE)


class Finding(Struct, frozen=True):
    where: str  # the file's path
    text: str
    remedy: str = ""
    is_problem: bool = True  # something its author expects to work has no effect

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" + (f". {self.remedy}" if self.remedy else "")


def read_json(path: str, findings: list[Finding]) -> dict[str, Any]:
    """Read the table in a JSON file, with or without comments.

    {} if the file is missing or unusable; in the latter case, a finding explains why.
    """
    data = read_bytes(path, findings)
    if data is None:
        return {}
    try:
        return _check_table(_decode_json(data), path, findings)
    except (ValueError, RecursionError) as error:
        _add_unreadable(path, f"it is not JSON: {_describe(error)}", findings)
        return {}


def read_toml(path: str, findings: list[Finding]) -> dict[str, Any]:
    data = read_bytes(path, findings)
    if data is None:
        return {}
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        _add_unreadable(path, f"it is not TOML: {_describe(error)}", findings)
        return {}


def read_bytes(path: str, findings: list[Finding]) -> bytes | None:
    """Read a file. None if it is missing, or unusable for a reason given in a finding."""
    limit = MAX_STATE_BYTES if path.endswith("/.claude.json") else MAX_BYTES
    try:
        return read_regular_file(path, max_bytes=limit)
    except OSError as error:
        if not is_missing(path, error):
            _add_unreadable(path, error.strerror or str(error), findings)
        return None


def _decode_json(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except ValueError as error:
        text = data.decode("utf-8-sig")
        text = _COMMENT.sub(_keep_text, text)
        try:
            return msgspec.json.decode(_LAST_COMMA.sub(_keep_text, text))
        except ValueError:
            raise error from None


def _keep_text(match: re.Match[str]) -> str:
    return next(filter(None, match.groups()), "")


def _describe(error: Exception) -> str:
    return "it nests too deeply" if isinstance(error, RecursionError) else str(error)


def _check_table(value: object, path: str, findings: list[Finding]) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    _add_unreadable(path, "it contains no table", findings)
    return {}


def as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _add_unreadable(path: str, reason: str, findings: list[Finding]) -> None:
    findings.append(Finding(path, f"the file is not used: {reason}", "Correct the file."))


class EntryReader:
    """Checked access to the fields of an entry, called by its subject, such as "server git"."""

    def __init__(self, entry: object, path: str, subject: str, findings: list[Finding]) -> None:
        self.path = path
        self.subject = subject
        self.is_usable = True
        self._findings = findings
        self._used = set[str]()
        self.entry: Mapping[str, Any] = {}
        if isinstance(entry, dict):
            self.entry = cast("dict[str, Any]", entry)
        else:
            self.reject("it is no table")

    def reject(self, reason: str, remedy: str = "Correct the entry.") -> None:
        self.is_usable = False
        self._findings.append(Finding(self.path, f"{self.subject} is not used: {reason}", remedy))

    def add_note(self, text: str, remedy: str = "", *, is_problem: bool = False) -> None:
        self._findings.append(Finding(self.path, f"{self.subject}: {text}", remedy, is_problem))

    def read_text(self, *names: str) -> str:
        """Read the first of these fields that is set; "" if none is."""
        return str(self._read(names, str, "a text") or "")

    def read_flag(self, name: str) -> bool | None:
        return cast("bool | None", self._read((name,), bool, "true or false"))

    def read_texts(self, *names: str) -> tuple[str, ...]:
        value = cast("list[object]", self._read(names, list, "a list of texts") or [])
        if not all(isinstance(item, str) for item in value):
            self.reject(f"{names[0]} must be a list of texts")
            return ()
        return tuple(map(str, value))

    def read_table(self, *names: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self._read(names, dict, "a table") or {})

    def read_variables(self, *names: str) -> dict[str, str]:
        """Read a table of texts, converting numbers and booleans to text."""
        values: dict[str, str] = {}
        for key, value in self.read_table(*names).items():
            if isinstance(value, bool):
                values[key] = str(value).lower()
            elif isinstance(value, str | int | float):
                values[key] = str(value)
            elif value is not None:
                self.reject(f"{names[0]}.{key} must be a text")
        return values

    def read_seconds(self, *names: str, unit: float = 1.0) -> float | None:
        """Read a time in seconds; None if not set. `unit` is the file's unit, in seconds."""
        value = self._read(names, (int, float), "a number")
        if value is None:
            return None
        seconds = float(cast("float", value)) * unit
        if not 0 < seconds < 1e9:
            self.add_note(f"{names[0]} {value} is not used: it must be above 0", is_problem=True)
            return None
        return seconds

    def skip(self, *names: str) -> None:
        self._used.update(names)

    def report_unused(self) -> None:
        unused = [name for name in self.entry if name not in self._used]
        if unused and self.is_usable:
            self.add_note(f"not used here: {', '.join(unused)}")

    def _read(self, names: tuple[str, ...], kind: type | tuple[type, ...], expected: str) -> object:
        self._used.update(names)
        for name in names:
            value = self.entry.get(name)
            if value is None:
                continue
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                self.reject(f"{name} must be {expected}")
                return None
            return value
        return None


def make_digest(*parts: object) -> str:
    """Make a text that identifies these values, regardless of the order of table keys."""
    data = msgspec.json.encode(parts, order="deterministic")
    return hashlib.sha256(data).hexdigest()[:32]


def mask_variables(variables: Mapping[str, str]) -> list[str]:
    """Format assignments `NAME=value` for a screen, without secrets."""
    return [
        f"{name}={'***' if _SECRET_NAME.search(name) and '$' not in value else value}"
        for name, value in variables.items()
    ]
