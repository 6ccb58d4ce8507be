"""Contents that are not text, as git tells them."""

from __future__ import annotations

_HEAD_BYTES = 8_000
"""Bytes at the start of a content in which a NUL means that it is not text."""


def is_binary(*contents: bytes) -> bool:
    """Return whether one of the contents is not text."""
    return any(b"\0" in content[:_HEAD_BYTES] for content in contents)
