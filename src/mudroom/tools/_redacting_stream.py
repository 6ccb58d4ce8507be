"""A byte stream without its secrets, also where a chunk ends in the middle of a secret."""

from __future__ import annotations

from collections.abc import Callable

LONGEST_SECRET = 24_000
"""Characters of the longest secret that is recognised; the stream holds back this many."""


class RedactingStream:
    """A filter of byte chunks. Bytes that are not UTF-8 pass unchanged.

    Arguments:
        redact: replaces the secrets in a text.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk and return the redacted bytes that no later chunk can change."""
        self._pending += chunk
        if len(self._pending) < 4 * LONGEST_SECRET:
            return b""
        redacted = self._redact_pending()
        complete = max(0, len(redacted) - LONGEST_SECRET)
        line_end = redacted.rfind(b"\n", 0, complete) + 1
        cut = line_end or complete
        self._pending = bytearray(redacted[cut:])
        return redacted[:cut]

    def flush(self) -> bytes:
        """Return the redacted rest."""
        rest = self._redact_pending()
        self._pending = bytearray()
        return rest

    def _redact_pending(self) -> bytes:
        text = self._pending.decode("utf-8", "surrogateescape")
        return self._redact(text).encode("utf-8", "surrogateescape")
