"""JSON for the wires: what no provider accepts (NUL, lone surrogates) never leaves the house."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

_ENCODER = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Compact JSON of a value; its strings are cleaned if they must be."""
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_cleaned(value))
    return _ENCODER.encode(_cleaned(value)) if b"\\u0000" in data else data


def clean(text: str) -> str:
    """The text without NUL; a surrogate without its partner becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "")


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _cleaned(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in cast("list[Any]", value)]
    return value
