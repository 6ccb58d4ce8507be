"""FleetControl: answers other processes that ask for the worker processes of a session."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Callable
from contextlib import suppress

from ..fleet_files import FleetFolder, FleetRequest, FleetStatus, WorkerStatus
from .pool import WorkerPool
from .worker_handle import WorkerHandle

log = logging.getLogger("mudroom")

_POLL_SECONDS = 0.1


class FleetControl:
    """Answers requests for the status of a session's worker processes, and drains them.

    Arguments:
        home: mudroom's state folder. session: id of the session.
        kind: see FleetStatus.
        count_waiting: returns the number of children that have no worker process yet.
    """

    def __init__(
        self, home: str, session: str, kind: str, pool: WorkerPool, count_waiting: Callable[[], int]
    ) -> None:
        self._home = home
        self._folder = FleetFolder(home, session)
        self._session = session
        self._kind = kind
        self._pool = pool
        self._count_waiting = count_waiting
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Answer requests from now on, if that has not begun and there is a state folder."""
        if self._serving is None and self._home:
            self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Answer no more requests, and remove the files."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
            self._folder.close()

    async def _serve(self) -> None:
        try:
            while not self._folder.open():  # noqa: ASYNC110  the other process sends no notice
                await asyncio.sleep(_POLL_SECONDS)
        except OSError as error:
            log.warning("mudroom fleet does not see this session: %s", error)
            return
        while True:
            for name, request in self._folder.take_requests().items():
                with suppress(OSError):  # a full disk: the other process says that no answer came
                    self._folder.write_answer(name, await self._answer(request))
            await asyncio.sleep(_POLL_SECONDS)

    async def _answer(self, request: FleetRequest) -> FleetStatus:
        self._pool.drain(request.drain)
        processes = sorted(self._pool.processes, key=lambda process: process.number)
        statuses = await asyncio.gather(*map(_describe, processes))
        return FleetStatus(
            session=self._session,
            kind=self._kind,
            pid=os.getpid(),
            host=platform.node(),
            waiting=self._count_waiting(),
            workers=tuple(statuses),
        )


async def _describe(process: WorkerHandle) -> WorkerStatus:
    memory, lease = await asyncio.gather(process.read_memory(), process.read_lease())
    running, waiting = process.list_runs()
    busy = "working" if running or waiting else "idle"
    return WorkerStatus(
        number=process.number,
        pid=process.pid,
        host=process.host,
        node=process.node,
        state="draining" if process.is_draining else busy,
        running=running,
        waiting=waiting,
        lease_seconds=lease,
        memory_bytes=memory,
    )
