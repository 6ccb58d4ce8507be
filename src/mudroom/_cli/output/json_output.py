"""JSON on stdout: for commands' --json flag, and lines for programs that follow a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ..._projections.safe_text import escape_json


def print_json(value: object) -> None:
    """Print anything msgspec can encode as indented JSON."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2)
    print(escape_json(text))


def print_json_line(value: object) -> None:
    print(encode_json(value))


def encode_json(value: object) -> str:
    """Encode a value as JSON that cannot control a terminal."""
    return escape_json(msgspec.json.encode(value).decode())


def encode_line(line: Mapping[str, Any]) -> bytes:
    """Encode a line of stream-json; invalid Unicode becomes a question mark."""
    text = escape_json(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
    return text.encode("utf-8", "replace") + b"\n"
