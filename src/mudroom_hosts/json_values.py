"""Values from a client's JSON, where those of the wrong type count as empty."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, cast


def as_object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_bytes(value: object) -> bytes:
    """Decode base64."""
    try:
        return b64decode(as_text(value), validate=True)
    except ValueError:
        return b""
