"""Lines of JSON as other programs leave them: torn, mixed, of many versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from ..errors import UsageError

Row = dict[str, Any]

_AROUND = (
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
    """The objects of a file, one a line; a line that is none, as a torn last one, is passed over."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if found := as_object(_parsed(line)):
                yield found


def read_object(path: Path) -> Row:
    """The object a file is, {} if there is none."""
    try:
        return as_object(_parsed(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def as_object(value: Any) -> Row:
    """The object, {} for anything else."""
    return cast(Row, value) if isinstance(value, dict) else {}


def as_objects(value: Any) -> list[Row]:
    """The objects of a list."""
    return (
        [cast(Row, each) for each in cast(list[Any], value) if isinstance(each, dict)]
        if isinstance(value, list)
        else []
    )


def parse_arguments(text: Any) -> tuple[Row, str]:
    """The arguments of a call, and their raw text if they are no object."""
    found = _parsed(text) if isinstance(text, str) else text
    return (as_object(found), "") if isinstance(found, dict) else ({}, str(text))


def extract_text(content: Any) -> str:
    """The words of a message or result: text, or a list of blocks with text in them."""
    if isinstance(content, str):
        return content
    parts = [
        str(block.get("text", "")) if "text" in block else f"[{block.get('type', 'block')}]"
        for block in as_objects(content)
    ]
    return "\n".join(parts)


def as_count(value: Any) -> int:
    """A count, 0 if it is none."""
    return value if isinstance(value, int) and value > 0 else 0


def parse_time(row: Row, default: float) -> float:
    """When a line was written, in seconds since 1970."""
    try:
        return datetime.fromisoformat(str(row["timestamp"]).replace("Z", "+00:00")).timestamp()
    except (KeyError, ValueError):
        return default


def is_injected_text(text: str) -> bool:
    """Whether a user message is the program's own word and no prompt of a person."""
    return text.lstrip().startswith(_AROUND)


def find_log(path: Path, suited: Callable[[Path], bool], whose: str) -> Path:
    """The file itself, or the newest suited log of a folder and the folders below it. Raises UsageError."""
    if path.is_file():
        return path
    found = [file for file in path.rglob("*.jsonl") if suited(file)]
    if not found:
        raise UsageError(f"there is no session log of {whose} in this folder", where=str(path))
    return max(found, key=lambda file: file.stat().st_mtime)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
