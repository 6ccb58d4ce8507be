"""WorkerPool: a session's worker processes, and the choice of one for the next run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from .worker_handle import WorkerHandle

log = logging.getLogger("mudroom")


class WorkerPool:
    """A session's worker processes. `make` takes a number and makes one, not started."""

    def __init__(self, make: Callable[[int], WorkerHandle], size: int) -> None:
        self._make = make
        self._count = 0
        self._endings: set[asyncio.Task[None]] = set()
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._replaced: list[WorkerHandle] = []
        self.processes = [self._add() for _ in range(size)]

    @property
    def has_own_files(self) -> bool:
        """True if a started process does not see the session's folder."""
        return any(process.sees_folder is False for process in self.processes)

    async def choose(self, *, needs_folder: bool = False, machine: str = "") -> WorkerHandle | None:
        """Choose the process with the fewest runs; None if no process sees a needed folder.

        Processes on `machine` come first; "" if it does not matter.
        """
        if machine and not any(process.host == machine for process in self._list_ready()):
            await self._start_on(machine)
        ready = self._list_ready()
        if needs_folder:
            ready = [process for process in ready if process.sees_folder is not False]
        on_machine = [process for process in ready if machine and process.host == machine]
        return min(on_machine or ready, key=lambda process: process.total_load, default=None)

    async def _start_on(self, machine: str) -> None:
        """Start a process on a machine, if possible. Waiting runs share the start."""
        if machine not in self._starts:
            start = asyncio.create_task(self._start_there(machine))
            self._starts[machine] = start
            start.add_done_callback(lambda _: self._starts.pop(machine))
        await asyncio.shield(self._starts[machine])

    async def _start_there(self, machine: str) -> None:
        # The new process replaces one that has not started, or is added.
        unused = [each for each in self._list_ready() if each.is_unused][:1]
        self.processes = [each for each in self.processes if each not in unused]
        process = self._add()
        process.place_on(machine)
        try:
            await process.open()
        except Exception as error:  # noqa: BLE001  the waiting runs will say what they lack
            log.warning("no worker process can start on %s: %s", machine, error)
            self.processes += unused
            return
        if process.host == machine:
            self.processes.append(process)
            return
        log.warning("a worker process for %s has started on %s", machine, process.host)
        self.processes += unused
        await process.close()

    def _list_ready(self) -> list[WorkerHandle]:
        """List the processes that get further runs.

        Lost processes are replaced first. Draining ones are replaced only if no other is left.
        """
        self.processes = [
            self._replace(process) if process.is_lost and not process.is_draining else process
            for process in self.processes
        ]
        ready = [process for process in self.processes if not process.is_draining]
        if not ready:
            ready = [self._add()]
            self.processes += ready
        return ready

    def drain(self, numbers: Collection[int]) -> None:
        """Give these processes no further runs, and end each after its last one."""
        for process in self.processes:
            if process.number in numbers and process.drain():
                task = asyncio.create_task(self._end_when_idle(process))
                self._endings.add(task)
                task.add_done_callback(self._endings.discard)

    def tell_watched(self) -> None:
        for process in self.processes:
            process.tell_watched()

    async def open(self) -> None:
        openings = (process.open() for process in self.processes)
        outcomes = await asyncio.gather(*openings, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def close(self) -> None:
        """End all processes; they have no runs."""
        for start in self._starts.values():
            start.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        # A lost process may work until its lease ends.
        processes = self.processes + self._replaced
        await asyncio.gather(*(process.close() for process in processes))
        await asyncio.gather(*self._endings)

    async def _end_when_idle(self, process: WorkerHandle) -> None:
        await process.wait_until_idle()
        await process.close()
        self.processes = [each for each in self.processes if each is not process]

    def _replace(self, lost: WorkerHandle) -> WorkerHandle:
        self._replaced = [each for each in self._replaced if not each.has_stopped]
        self._replaced.append(lost)
        return self._add()

    def _add(self) -> WorkerHandle:
        self._count += 1
        return self._make(self._count)
