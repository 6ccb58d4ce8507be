"""Time limits of blocks of code: `asyncio.timeout`, also for a task that is being cancelled.

Until Python 3.11.2, which Debian 12 has, a timeout that expires in a cancelled task raises
CancelledError instead of TimeoutError (github.com/python/cpython/issues/102780). Clean-up after a
cancel then ends at its first time limit: processes that had to be killed survive it.
"""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType


# asyncio.Timeout is final for checkers only.
class PatchedTimeout(asyncio.Timeout):  # pyright: ignore[reportGeneralTypeIssues]
    """Timeout that raises TimeoutError although its task was cancelled before it was entered."""

    async def __aenter__(self) -> asyncio.Timeout:
        self._own_task = asyncio.current_task()
        self._cancels_before = self._own_task.cancelling() if self._own_task else 0
        return await super().__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        is_over = self.expired() and kind is asyncio.CancelledError
        if is_over and self._own_task and self._own_task.cancelling() <= self._cancels_before:
            raise TimeoutError from error


IS_FIXED = sys.version_info >= (3, 11, 3)
_kind: type[asyncio.Timeout] = asyncio.Timeout if IS_FIXED else PatchedTimeout


def time_limit(seconds: float | None) -> asyncio.Timeout:
    """Return a context manager that raises TimeoutError after some seconds; None for no limit."""
    return _kind(None if seconds is None else asyncio.get_running_loop().time() + seconds)


def time_limit_at(when: float | None) -> asyncio.Timeout:
    """Return a context manager that raises TimeoutError at a time of the event loop."""
    return _kind(when)
