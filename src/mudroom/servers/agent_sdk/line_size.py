"""Lines that the agent SDKs can read: at most 900 kB, with longer texts cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .json_fields import as_list, as_object

MAX_LINE = 900_000
"""Bytes of a line. The SDKs end the session at a line of more than 1 MiB."""

_CAPS = (100_000, 10_000, 1_000, 100)
"""Characters of the longest text, one cap after the other until the line fits."""

_LISTS = ("reports", "permission_denials")
"""Fields that are left out if no cap suffices."""


def encode_line(line: Mapping[str, Any]) -> bytes:
    """Return a line of output with its line feed, with long texts cut if it would be too long."""
    data = _encode(line)
    for cap in _CAPS:
        if len(data) <= MAX_LINE:
            return data
        data = _encode(_cut_texts(dict(line), cap))
    if len(data) > MAX_LINE:
        data = _encode(_cut_texts({**line, **{name: [] for name in _LISTS if name in line}}, 100))
    return data


def fits(line: Mapping[str, Any]) -> bool:
    """Return whether a line is short enough without a cut."""
    return len(_encode(line)) <= MAX_LINE


def _encode(line: Mapping[str, Any]) -> bytes:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _cut_texts(value: Any, cap: int) -> Any:  # noqa: ANN401  (any JSON value)
    """Return a JSON value with texts of at most `cap` characters and a note."""
    if isinstance(value, str):
        left_out = len(value) - cap
        return f"{value[:cap]}\n[… {left_out:,} characters left out …]" if left_out > 0 else value
    if fields := as_object(value):
        return {key: _cut_texts(item, cap) for key, item in fields.items()}
    if items := as_list(value):
        return [_cut_texts(item, cap) for item in items]
    return value
