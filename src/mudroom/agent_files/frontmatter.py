"""The head of a Markdown file: `key: value` lines between two `---`, read as YAML, each key with its line.

YAML is read by its events, with bounds of our own: no tag makes an object, no alias multiplies, no nesting exhausts a stack.
Plain scalars are typed by YAML 1.2's core schema, as the tools that these files are written for do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, json

from .diagnostics import FileDiagnostics

MAX_DEPTH = 20
"""Levels of lists and maps in a head."""
MAX_CHARACTERS = 64 << 10
"""Characters of a head."""


class Entry(Struct, frozen=True):
    """The value of a key, and its line in the file."""

    value: Any
    line: int


class Document(Struct, frozen=True):
    """A file with a head.

    Arguments:
        entries: key -> value with its line. body: what follows, without blank lines around it. line: where the body begins.
    """

    entries: dict[str, Entry]
    body: str
    body_line: int


def parse_document(text: str, notes: FileDiagnostics) -> Document | None:
    """The file's head and body; None when it has no head, or one that cannot be read (`notes` says why, then)."""
    parts = _parted(text, notes)
    if parts is None:
        return None
    head, body, line = parts
    entries = parse_mapping(head, notes, first_line=2)
    return None if entries is None else Document(entries, body.strip(), line)


def _parted(text: str, notes: FileDiagnostics) -> tuple[str, str, int] | None:
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return None
    for at, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "\n".join(lines[1:at]), "\n".join(lines[at + 1 :]), at + 2
    notes.add_error(1, "the head that begins here has no end: a second line ---")
    return None


def parse_mapping(head: str, notes: FileDiagnostics, *, first_line: int) -> dict[str, Entry] | None:
    """A YAML mapping of texts to values; None, and an error in `notes`, for anything else.

    Values with an unquoted colon, which is no YAML but common, are read as the texts they are meant to be.

    Arguments:
        first: line of the file that the head begins at.
    """
    import yaml

    if len(head) > MAX_CHARACTERS:
        notes.add_error(first_line, f"a head of more than {MAX_CHARACTERS:,} characters")
        return None
    try:
        return _read(head, notes, first_line)
    except _Unreadable as error:
        notes.add_error(error.line + first_line, error.reason)
        return None
    except (yaml.YAMLError, UnicodeError) as error:
        wrong = _as_unreadable(error)
    mended, lines = _mended(head)
    try:
        entries = _read(mended, notes, first_line) if lines else None
    except (yaml.YAMLError, _Unreadable):
        entries = None
    if entries is None:
        notes.add_error(wrong.line + first_line, f"not YAML: {wrong.reason}")
        return None
    for line in lines:
        notes.add_warning(
            line + first_line, "not YAML: a text with a colon in it wants quotes; read as one text"
        )
    return entries


class _Unreadable(Exception):
    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line, self.reason = line, reason


def _as_unreadable(error: Exception) -> _Unreadable:
    mark: Any = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error).split("\n")[0]
    return _Unreadable(mark.line if mark else 0, reason)


def _read(head: str, notes: FileDiagnostics, first: int) -> dict[str, Entry] | None:
    import yaml

    events: Any = yaml.parse(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    entries: dict[str, Entry] = {}
    event: Any = next(
        event
        for event in events
        if not isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent))
    )
    if isinstance(event, yaml.StreamEndEvent):
        return entries
    if not isinstance(event, yaml.MappingStartEvent):
        raise _Unreadable(event.start_mark.line, "the head is no list of `key: value` lines")
    for key, value, line in _pairs(events, 1):
        if key in entries:
            notes.add_warning(line + first, f"{key!r} is given twice; the last one counts")
        entries[key] = Entry(value, line + first)
    return entries


def _pairs(events: Any, depth: int) -> Iterator[tuple[str, Any, int]]:
    """Keys, values and lines of a mapping whose start was read, up to its end."""
    import yaml

    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return
        line = event.start_mark.line
        if not isinstance(event, yaml.ScalarEvent):
            raise _Unreadable(line, "a key that is no text")
        yield event.value, _value(next(events), events, depth), line


def _value(event: Any, events: Any, depth: int) -> Any:
    import yaml

    line = event.start_mark.line
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event.value) if event.implicit[0] else event.value
    if isinstance(event, yaml.AliasEvent):
        raise _Unreadable(line, "aliases (*name) are not read; write the value out")
    if depth >= MAX_DEPTH:
        raise _Unreadable(line, f"more than {MAX_DEPTH} levels deep")
    if isinstance(event, yaml.MappingStartEvent):
        return {key: value for key, value, _ in _pairs(events, depth + 1)}
    items: list[Any] = []
    for item in events:
        if isinstance(item, yaml.SequenceEndEvent):
            break
        items.append(_value(item, events, depth + 1))
    return items


_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


def _scalar(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


_LINE = re.compile(r"([A-Za-z_][\w-]*):[ \t]+([^\s\"'|>\[{&*!#].*)")


def _mended(head: str) -> tuple[str, list[int]]:
    """The head with quotes around the values that have a colon in them, and the numbers of these lines, from 0."""
    lines, mended = head.split("\n"), list[int]()
    for at, line in enumerate(lines):
        found = _LINE.fullmatch(line)
        if found and (": " in found[2] or found[2].endswith(":") or " #" in found[2]):
            lines[at] = f"{found[1]}: {json.encode(found[2].strip()).decode()}"
            mended.append(at)
    return "\n".join(lines), mended
