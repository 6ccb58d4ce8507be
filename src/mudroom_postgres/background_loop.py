"""An event loop in its own thread, for all database connections.

Connections belong to one event loop, but stores outlive the loops that use them: a command may call
`asyncio.run` several times. Leases must also be renewed while the caller's loop is busy.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("mudroom")

# The longest that the end of the process waits for connections to close.
_CLOSE_SECONDS = 2.0


class BackgroundLoop:
    """An event loop that runs until the process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_log_unread_error)
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        Thread(target=self.loop.run_forever, name="postgres", daemon=True).start()
        atexit.register(self._close)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and return its result. A cancel reaches it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def close_at_exit(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have a coroutine function called in the thread when the process ends."""
        self._closers.append(close)

    def _close(self) -> None:
        for close in self._closers:
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(close(), self.loop).result(_CLOSE_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)


def _log_unread_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no one awaits; asyncpg leaves some when a server dies."""
    log.debug("postgres: %s", context.get("message"), exc_info=context.get("exception"))


@cache
def get_background_loop() -> BackgroundLoop:
    """Return the loop of this process, starting its thread at the first call."""
    return BackgroundLoop()
