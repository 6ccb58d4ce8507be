"""FairSlots: slots for concurrent work, shared fairly between owners."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class FairSlots:
    """The slots of one server process.

    Each prompt or task holds one. A free slot goes to the owner holding the fewest; in a tie, to
    the one who has waited longest since its last slot. An owner with a lot of work therefore does
    not delay the others.

    Arguments:
        total: number of slots. per_owner: the most that one owner can hold.

    Example:
        slots = FairSlots(total=16, per_owner=12)

        async def answer(user: str, driver: SessionDriver[str], prompt: str) -> None:
            async with slots.hold(user):
                await driver.submit(prompt).wait()
    """

    def __init__(self, total: int, per_owner: int) -> None:
        self._total = total
        self._per_owner = min(per_owner, total)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._working: Counter[str] = Counter()
        self._grants = 0
        self._last_grant: dict[str, int] = {}
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def working(self) -> int:
        """Number of slots held."""
        return self._working.total()

    @property
    def waiting(self) -> int:
        """Number of requests waiting for a slot."""
        return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Hand out no more slots."""
        self._is_closed = True

    async def wait_until_idle(self) -> None:
        """Wait until no slot is held."""
        await self._idle.wait()

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncGenerator[None]:
        """Wait for a slot, and hold it during the `async with` block.

        Arguments:
            owner: name of the user or program the work is for.
        """
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(owner, deque())
        queue.append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release(owner)
            else:
                self._remove(owner, granted)
            raise
        try:
            yield
        finally:
            self._release(owner)

    def _grant(self) -> None:
        while not self._is_closed and self._working.total() < self._total:
            owners = [each for each in self._waiting if self._working[each] < self._per_owner]
            if not owners:
                return
            owner = min(owners, key=self._rank)
            granted = self._waiting[owner].popleft()
            if not self._waiting[owner]:
                del self._waiting[owner]
            if granted.done():
                continue  # cancelled, and its task has not run since
            self._grants += 1
            self._last_grant[owner] = self._grants
            self._working[owner] += 1
            self._idle.clear()
            granted.set_result(None)

    def _rank(self, owner: str) -> tuple[int, int]:
        return self._working[owner], self._last_grant.get(owner, 0)

    def _release(self, owner: str) -> None:
        self._working[owner] -= 1
        if not self._working[owner]:
            del self._working[owner]
        if not self._working:
            self._idle.set()
        if owner not in self._waiting and owner not in self._working:
            self._last_grant.pop(owner, None)
        self._grant()

    def _remove(self, owner: str, granted: asyncio.Future[None]) -> None:
        queue = self._waiting.get(owner)
        if queue and granted in queue:
            queue.remove(granted)
            if not queue:
                del self._waiting[owner]
