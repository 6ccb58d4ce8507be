"""Numbered pieces of a stream, put in order."""

from __future__ import annotations


class InOrder:
    """Pieces with the numbers 1, 2, 3 and so on that may arrive in another order.

    Attributes:
        last: number of the last piece that has been returned.
    """

    def __init__(self) -> None:
        self.last = 0
        self._early: dict[int, bytes] = {}

    def add(self, number: int, piece: bytes) -> bytes:
        """Add a piece. Return the bytes that are in order now, b"" if an earlier one is missing."""
        self._early[number] = piece
        complete = b""
        while (following := self._early.pop(self.last + 1, None)) is not None:
            self.last += 1
            complete += following
        return complete
