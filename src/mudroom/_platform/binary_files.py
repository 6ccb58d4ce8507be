"""Tells binary contents from text, as git does."""

from __future__ import annotations

# Git looks for a NUL in as many bytes at the start.
_HEAD_BYTES = 8_000


def is_binary(*contents: bytes) -> bool:
    """Return whether any of the contents is binary."""
    return any(b"\0" in content[:_HEAD_BYTES] for content in contents)
