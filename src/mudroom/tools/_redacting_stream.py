"""A text that comes in pieces, without its secrets wherever the pieces were cut."""

from __future__ import annotations

from collections.abc import Callable

LONGEST_SECRET = 24_000
"""Characters a secret may take; so many wait for what comes next."""


class RedactingStream:
    """Bytes in, bytes out; what is no UTF-8 comes out as it was.

    Arguments:
        redact: takes secrets out of a text.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact, self._waiting = redact, bytearray()

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; what may go out now."""
        self._waiting += piece
        if len(self._waiting) < 4 * LONGEST_SECRET:
            return b""
        whole = self._clean()
        cut = whole.rfind(b"\n", 0, len(whole) - LONGEST_SECRET) + 1 or max(
            0, len(whole) - LONGEST_SECRET
        )
        self._waiting = bytearray(whole[cut:])
        return whole[:cut]

    def flush(self) -> bytes:
        """What was left."""
        whole, self._waiting = self._clean(), bytearray()
        return whole

    def _clean(self) -> bytes:
        text = self._waiting.decode("utf-8", "surrogateescape")
        return self._redact(text).encode("utf-8", "surrogateescape")
