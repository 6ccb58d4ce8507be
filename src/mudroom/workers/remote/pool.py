"""WorkerPool: the worker processes of a session, and which of them gets the next run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from .worker_handle import WorkerHandle


class WorkerPool:
    """The worker processes of a session.

    Arguments:
        make: returns a worker process that is not started, with this number.
        size: number of worker processes.
    """

    def __init__(self, make: Callable[[int], WorkerHandle], size: int) -> None:
        self._make = make
        self._count = 0
        self._endings: set[asyncio.Task[None]] = set()
        self.processes = [self._add() for _ in range(size)]

    async def choose(self, *, needs_folder: bool = False, machine: str = "") -> WorkerHandle | None:
        """Return the process with the fewest runs; None if none sees a folder that is needed.

        Arguments:
            needs_folder: true if the process must see the folder of the session.
            machine: name of the machine whose processes come first; "" for none. If none is known
                to be there, those that have not started are started, because their machine is not
                known before.
        """
        ready = self._list_ready()
        if machine and all(process.host != machine for process in ready):
            unknown = [process for process in ready if not process.host]
            starts = (process.wait_until_open() for process in unknown)
            # A process that cannot start is lost, and the run reads why if it gets the next one.
            await asyncio.gather(*starts, return_exceptions=True)
            ready = self._list_ready()
        if needs_folder:
            ready = [process for process in ready if process.sees_folder is not False]
        near = [process for process in ready if machine and process.host == machine]
        return min(near or ready, key=lambda process: process.load, default=None)

    def _list_ready(self) -> list[WorkerHandle]:
        """Return the processes that get further runs.

        A lost process is replaced first. A draining one is replaced only if no other one is left.
        """
        self.processes = [
            self._add() if process.is_lost and not process.is_draining else process
            for process in self.processes
        ]
        ready = [process for process in self.processes if not process.is_draining]
        if not ready:
            ready = [self._add()]
            self.processes += ready
        return ready

    def drain(self, numbers: Collection[int]) -> None:
        """Give these processes no further runs, and end each one after its last run."""
        for process in self.processes:
            if process.number in numbers and not process.is_draining:
                process.is_draining = True
                task = asyncio.create_task(self._end_when_idle(process))
                self._endings.add(task)
                task.add_done_callback(self._endings.discard)

    async def open(self) -> None:
        """Start all processes. Raises UsageError if one cannot execute runs."""
        openings = (process.open() for process in self.processes)
        outcomes = await asyncio.gather(*openings, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def close(self) -> None:
        """End all processes, which have no runs."""
        await asyncio.gather(*(process.close() for process in self.processes))
        await asyncio.gather(*self._endings)

    async def _end_when_idle(self, process: WorkerHandle) -> None:
        await process.wait_until_idle()
        await process.close()
        self.processes = [each for each in self.processes if each is not process]

    def _add(self) -> WorkerHandle:
        self._count += 1
        return self._make(self._count)
