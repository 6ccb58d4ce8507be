"""Tolerant access to JSON lines of other programs: torn lines, missing fields, many versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from ..errors import UsageError

Row = dict[str, Any]

_INJECTED_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "<system-reminder>",
    "<turn_aborted>",
    "<local-command",
    "# AGENTS.md",
    "Caveat:",
)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the objects of a file, one per line; other lines are ignored."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if row := to_object(_parse(line)):
                yield row


def read_object(path: Path) -> Row:
    """Return the object in a file, {} if there is none."""
    try:
        return to_object(_parse(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def to_object(value: object) -> Row:
    """Return an object unchanged, {} for any other value."""
    return cast(Row, value) if isinstance(value, dict) else {}


def to_objects(value: object) -> list[Row]:
    """Return the objects in a list, [] for any other value."""
    if not isinstance(value, list):
        return []
    return [cast(Row, item) for item in cast(list[Any], value) if isinstance(item, dict)]


def parse_arguments(value: object) -> tuple[Row, str]:
    """Return the arguments of a call and ""; {} and the raw text if they are no object."""
    parsed = _parse(value) if isinstance(value, str) else value
    if isinstance(parsed, dict):
        return cast(Row, parsed), ""
    return {}, str(cast(object, value))


def extract_text(content: object) -> str:
    """Return the text of a message or result: a text, or a list of blocks with texts."""
    if isinstance(content, str):
        return content
    texts = [
        str(block.get("text", "")) if "text" in block else f"[{block.get('type', 'block')}]"
        for block in to_objects(content)
    ]
    return "\n".join(texts)


def to_count(value: object) -> int:
    """Return a positive integer unchanged, 0 for any other value."""
    return value if isinstance(value, int) and value > 0 else 0


def parse_time(row: Row, default: float) -> float:
    """Return the timestamp of a row in seconds since 1970, `default` if it has none."""
    try:
        return datetime.fromisoformat(str(row["timestamp"]).replace("Z", "+00:00")).timestamp()
    except (KeyError, ValueError):
        return default


def is_injected_text(text: str) -> bool:
    """Return True if the program added the text of a user message itself."""
    return text.lstrip().startswith(_INJECTED_PREFIXES)


def find_log(path: Path, is_session: Callable[[Path], bool], program: str) -> Path:
    """Return the path of a file, or the newest session log in and below a folder.

    Arguments:
        is_session: returns True for a session log.
        program: name of the program, for the error message.

    Raises UsageError.
    """
    if path.is_file():
        return path
    logs = [file for file in path.rglob("*.jsonl") if is_session(file)]
    if not logs:
        raise UsageError(f"no session log of {program} in this folder", where=str(path))
    return max(logs, key=lambda file: file.stat().st_mtime)


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
