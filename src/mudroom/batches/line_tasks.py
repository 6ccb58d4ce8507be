"""LineTasks: the lines of a batch that run, or wait for a place to run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

OpenPlace = Callable[[], AbstractAsyncContextManager[None]]
"""Function that returns the context in which one line runs; the line waits until it is entered."""


class LineTasks:
    """The lines that have started and not ended.

    Arguments:
        open_place: gives each line its place. on_end: called when a line has ended.
    """

    def __init__(self, open_place: OpenPlace, on_end: Callable[[], object]) -> None:
        self._open_place = open_place
        self._on_end = on_end
        self._started: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._started)

    def start(
        self, group: asyncio.TaskGroup, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a line when it has a place."""
        task = group.create_task(self._run(work))
        self._started.add(task)
        self._waiting.add(task)
        task.add_done_callback(self._discard)

    def cancel_waiting(self) -> None:
        """Cancel the lines that have no place yet."""
        for task in self._waiting:
            task.cancel()

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._open_place():
            if task := asyncio.current_task():
                self._waiting.discard(task)
            await work()

    def _discard(self, task: asyncio.Task[None]) -> None:
        self._started.discard(task)
        self._waiting.discard(task)
        self._on_end()
