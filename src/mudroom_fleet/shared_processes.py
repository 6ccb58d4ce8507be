"""The shared worker processes, seen from the process of the sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import count
from typing import Protocol

import msgspec

from mudroom.errors import UsageError
from mudroom.ports import MessageStream, WorkerConnection, WorkerTransport

from .shared_messages import FromShared, ShareProcess

_ENDED = "a process that several sessions use has ended"
_UNREADABLE = "it sent bytes that are not a message"


class ProcessPart(Protocol):
    """A session's part of a process."""

    def handle(self, message: FromShared) -> None:
        """Take a message of the process for the session."""
        ...

    def end(self) -> None:
        """Note that the process is lost, and detach the part."""
        ...


class SharedProcess:
    """One worker process.

    Arguments:
        connection: the process, not started.
        program: what the process executes for each session; see `WorkerTransport`.
        machine: name of the machine it starts on, "" if that does not matter.

    Attributes:
        send: sends a message to the process.
        runs: runs of all sessions that the process has.
        is_lost: it has ended, is being ended, or could not start.
        is_draining: it gets no further runs, and ends after the last session that uses it.
        loss: why it was lost, "" if not known.
    """

    def __init__(self, connection: WorkerConnection, program: str, machine: str = "") -> None:
        self.connection = connection
        self._program = program
        self._stream = MessageStream[FromShared](connection, FromShared)
        self.send = self._stream.send
        self.machine = machine
        self.runs = 0
        self.is_lost = False
        self.is_draining = False
        self.loss = ""
        self._parts: dict[int, ProcessPart] = {}
        self._numbers = count(1)
        self._opening: asyncio.Task[None] | None = None
        self._dispatching: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    @property
    def load(self) -> tuple[int, int]:
        """Numbers of its runs and sessions, to compare processes."""
        return self.runs, len(self._parts)

    @property
    def has_started(self) -> bool:
        """True if the process has started."""
        return self._dispatching is not None

    async def open(self) -> None:
        """Start the process, if that is not done. A cancel ends the wait, not the start.

        Raises UsageError if it cannot execute runs.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_read_exception)
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        try:
            await self.connection.open()
        except BaseException:
            self.is_lost = True
            self._end_parts()
            self._stopped.set()
            raise
        self.send(ShareProcess(self._program))
        self._dispatching = asyncio.create_task(self._dispatch())

    @property
    def has_stopped(self) -> bool:
        """True if the process does nothing more."""
        return self._stopped.is_set()

    def attach(self, part: ProcessPart) -> int:
        """Pass messages to a part from now on. Return its number."""
        number = next(self._numbers)
        self._parts[number] = part
        return number

    def detach(self, number: int) -> bool:
        """Pass no more messages to a part. Return False if that was done before.

        A draining process ends after its last part.
        """
        was_attached = self._parts.pop(number, None) is not None
        if self.is_draining and not self._parts:
            self._start_end()
        return was_attached

    def drain(self) -> None:
        """Give the process no further runs."""
        self.is_draining = True

    def kill(self, reason: str) -> None:
        """End the process, which does not answer any session."""
        if self.has_started:
            self.is_lost = True  # no other session begins to use it
            self.connection.kill(reason)

    async def end(self) -> None:
        """End the process, with the parts of all sessions, and wait until it does nothing more."""
        self._start_end()
        await self._stopped.wait()

    def _start_end(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._opening is None:
            self._stopped.set()
        else:
            self._ending = asyncio.create_task(self._stop(self._opening))

    async def _stop(self, opening: asyncio.Task[None]) -> None:
        await asyncio.wait((opening,))
        if self.has_started:
            await self.connection.wait_until_stopped()

    async def close(self) -> None:
        """End the process, which has no runs."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        self._stream.flush()
        await self.connection.close()
        tasks = (task for task in (self._dispatching, self._ending) if task is not None)
        await asyncio.gather(*tasks)

    async def _dispatch(self) -> None:
        """Pass the messages of the process to the parts, until it ends."""
        try:
            while messages := await self._stream.receive_all():
                for message in messages:
                    if part := self._parts.get(message.number):
                        part.handle(message)
        except msgspec.DecodeError as error:
            self.loss = f"{_UNREADABLE}: {error}"
        self.is_lost = True
        self.loss = self.loss or self.connection.loss or _ENDED
        self._end_parts()
        await self.connection.wait_until_stopped()
        self._stopped.set()

    def _end_parts(self) -> None:
        for part in list(self._parts.values()):
            part.end()


class SharedProcesses:
    """The worker processes of several sessions.

    Arguments:
        transport: starts the processes, which execute `serve` of this package.
        size: number of processes.
        program: what a process executes for each session; see `WorkerTransport`.
    """

    def __init__(self, transport: WorkerTransport, size: int, program: str) -> None:
        self.transport = transport
        self.size = size
        self._program = program
        self._processes: list[SharedProcess] = []
        self._lost: list[SharedProcess] = []
        self._is_closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes that have started and not ended."""
        pids = (each.connection.pid for each in self._processes if not each.is_lost)
        return tuple(pid for pid in pids if pid is not None)

    def choose(self, machine: str, used: Collection[SharedProcess]) -> SharedProcess:
        """Return a process with few runs; it may not have started. Raises UsageError after `close`.

        Arguments:
            machine: name of the machine it should be on, "" if that does not matter.
            used: processes that the session uses already; chosen only if there is no other one.
        """
        if self._is_closed:
            raise UsageError("the worker processes of the sessions are closed", where="workers")
        ready = self._list_ready()
        if machine:
            there = [each for each in ready if machine in (each.machine, each.connection.host)]
            ready = there or [self._add(machine)]
        unused = [each for each in ready if each not in used]
        return min(unused or ready, key=lambda each: each.load)

    async def open(self) -> None:
        """Start all processes now. Raises UsageError if one cannot execute runs."""
        await asyncio.gather(*(process.open() for process in self._list_ready()))

    async def close(self) -> None:
        """End all processes. The sessions that use them are closed."""
        self._is_closed = True
        processes = (*self._processes, *self._lost)
        try:
            await asyncio.gather(*(process.close() for process in processes))
        finally:
            await self.transport.close()

    def _list_ready(self) -> list[SharedProcess]:
        """Return the processes that take runs.

        A lost process is replaced first. A draining one is replaced only if no other one is left.
        """
        lost = (each for each in (*self._lost, *self._processes) if each.is_lost)
        self._lost = [each for each in lost if not each.has_stopped]
        self._processes = [each for each in self._processes if not each.is_lost]
        while len(self._processes) < self.size:
            self._add()
        ready = [each for each in self._processes if not each.is_draining]
        return ready or [self._add()]

    def _add(self, machine: str = "") -> SharedProcess:
        connection = self.transport.connect()
        if machine:
            connection.place_on(machine)
        process = SharedProcess(connection, self._program, machine)
        self._processes.append(process)
        return process


def _read_exception(task: asyncio.Task[None]) -> None:
    """Read the exception of a task, or asyncio logs it if its caller was cancelled."""
    if not task.cancelled():
        task.exception()
