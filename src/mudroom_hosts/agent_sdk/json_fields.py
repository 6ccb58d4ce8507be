"""Fields of JSON objects from outside, whose types are not known."""

from __future__ import annotations

from typing import Any, cast


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one if the value is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON list, or an empty one if the value is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a text, or "" if the value is none."""
    return value if isinstance(value, str) else ""
