"""The event loop of mudroom's own processes: uvloop, if installed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_event_loop(main: Coroutine[Any, Any, _T]) -> _T:
    try:
        from uvloop import new_event_loop
    except ImportError:  # the extra `uvloop` is not installed
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def finish_in_thread(work: Coroutine[Any, Any, _T], stop: threading.Event) -> _T:
    """Wait for work in a thread. If cancelled, stop the work and wait for the thread to end."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # read it, or asyncio logs it as never retrieved
        raise
