"""Queue of input lines between the user interface and the conversation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable


class LineQueue:
    """Input lines that wait to be handled, oldest first."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque()
        self.is_closed = False
        self._changed = asyncio.Event()

    def put(self, *lines: str) -> None:
        """Add lines. Lines added after `close` are dropped."""
        if not self.is_closed:
            self.lines.extend(lines)
            self._changed.set()

    def take_all(self) -> Iterable[str]:
        lines = list(self.lines)
        self.lines.clear()
        return lines

    def close(self) -> None:
        """End the input: `take` returns the waiting lines, then raises EOFError."""
        self.is_closed = True
        self._changed.set()

    async def take(self) -> str:
        """Wait for the next line and remove it. Raises EOFError at the end of the input."""
        while not self.lines:
            if self.is_closed:
                raise EOFError
            self._changed.clear()
            await self._changed.wait()
        return self.lines.popleft()
