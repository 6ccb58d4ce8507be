"""Worker processes shared by several sessions, seen from the sessions' process.

Each session has a part of a process, as if it had the process to itself. The bytes of all parts
cross the process's single connection, each piece with its session's number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import count
from typing import Protocol

import msgspec

from mudroom.errors import UsageError
from mudroom.ports import (
    Activity,
    AnswerLimits,
    Arrivals,
    MessageStream,
    WorkerConnection,
    WorkerTransport,
)

from .messages import (
    ClosePart,
    FromShared,
    OpenPart,
    PartBytes,
    SessionReady,
    ShareProcess,
)

_CLOSE_SECONDS = 1.5  # longest wait for a process to close a session's resources
_ENDED = "a process that several sessions use has ended"
_UNREADABLE = "it sent bytes that are not a message"


class ProcessPart(Protocol):
    """A session's part of a process."""

    def handle(self, message: FromShared) -> None: ...

    def end(self) -> None:
        """Record that the process is lost, and detach the part."""
        ...


class SharedProcess:
    """A worker process.

    Arguments:
        connection: the process, not started.
        program: executed by the process for each session; see `WorkerTransport`.
        machine: name of the machine to start on, "" if that does not matter.
    """

    def __init__(self, connection: WorkerConnection, program: str, machine: str = "") -> None:
        self.connection = connection
        self._program = program
        self._stream = MessageStream[FromShared](connection, FromShared)
        self.send = self._stream.send
        self.machine = machine
        self.runs = 0  # of all sessions
        self.is_lost = False  # has ended, is being ended, or could not start
        self.is_draining = False  # gets no further runs, and ends after its last session
        self.loss = ""  # why it was lost
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
        return self._dispatching is not None

    async def open(self) -> None:
        """Start the process if needed. A cancel ends the wait, not the start."""
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
        return self._stopped.is_set()

    def attach(self, part: ProcessPart) -> int:
        number = next(self._numbers)
        self._parts[number] = part
        return number

    def detach(self, number: int) -> bool:
        """Pass no more messages to a part. Return False if it was already detached.

        A draining process ends after its last part.
        """
        was_attached = self._parts.pop(number, None) is not None
        if self.is_draining and not self._parts:
            self._start_end()
        return was_attached

    def drain(self) -> None:
        self.is_draining = True

    def kill(self, reason: str) -> None:
        """End the process, which answers no session."""
        if self.has_started:
            self.is_lost = True  # keeps other sessions from using it
            self.connection.kill(reason)

    async def end(self) -> None:
        """End the process, with all sessions' parts, and wait until it has stopped."""
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
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        self._stream.flush()
        await self.connection.close()
        tasks = (task for task in (self._dispatching, self._ending) if task is not None)
        await asyncio.gather(*tasks)

    async def _dispatch(self) -> None:
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
    """Several sessions' worker processes. They execute `serve` of this package."""

    def __init__(self, transport: WorkerTransport, size: int, program: str) -> None:
        self.transport = transport
        self.size = size
        self._program = program
        self._processes: list[SharedProcess] = []
        self._lost: list[SharedProcess] = []
        self._is_closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes that have started but not ended."""
        pids = (each.connection.pid for each in self._processes if not each.is_lost)
        return tuple(pid for pid in pids if pid is not None)

    def choose(self, machine: str, used: Collection[SharedProcess]) -> SharedProcess:
        """Choose a process with few runs, perhaps not started. Raises UsageError after `close`.

        A machine of "" does not matter. Processes already `used` by the session are chosen only if
        there is no other.
        """
        if self._is_closed:
            raise UsageError("the worker processes of the sessions are closed", where="worker")
        ready = self._list_ready()
        if machine:
            there = [each for each in ready if machine in (each.machine, each.connection.host)]
            ready = there or [self._add(machine)]
        unused = [each for each in ready if each not in used]
        return min(unused or ready, key=lambda each: each.load)

    async def open(self) -> None:
        await asyncio.gather(*(process.open() for process in self._list_ready()))

    async def close(self) -> None:
        """End all processes. Their sessions are closed."""
        self._is_closed = True
        processes = (*self._processes, *self._lost)
        try:
            await asyncio.gather(*(process.close() for process in processes))
        finally:
            await self.transport.close()

    def _list_ready(self) -> list[SharedProcess]:
        """List the processes that take runs.

        Lost processes are replaced first. Draining ones are replaced only if no other is left.
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


class SharedTransport:
    """The port WorkerTransport for a session that shares its worker processes."""

    is_shared = True

    def __init__(self, processes: SharedProcesses) -> None:
        self.kind = processes.transport.kind
        self.is_far = processes.transport.is_far
        self._processes = processes
        self._used: list[SharedProcess] = []

    def connect(self) -> SharedConnection:
        """Make a connection, to a process not yet used by this session if there is one."""
        return SharedConnection(self._processes, self._used)

    async def close(self) -> None:
        """Do nothing: the processes also belong to other sessions."""


class SharedConnection:
    """The port WorkerConnection for a session's part of a shared process."""

    def __init__(self, processes: SharedProcesses, used: list[SharedProcess]) -> None:
        self._processes = processes
        self._used = used
        self._machine = ""
        self._process: SharedProcess | None = None
        self._number = 0
        self._runs = 0
        self._arrived = Arrivals()
        self._over = asyncio.get_running_loop().create_future()
        self._opened: asyncio.Future[None] | None = None
        self._has_begun = False
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return self._process and self._process.connection.pid

    @property
    def host(self) -> str:
        return self._process.connection.host if self._process else ""

    @property
    def node(self) -> str:
        return self._process.connection.node if self._process else ""

    @property
    def loss(self) -> str:
        return self._process.loss if self._process else ""

    @property
    def is_draining(self) -> bool:
        return bool(self._process and self._process.is_draining and not self._over.done())

    @property
    def other_runs(self) -> int:
        return self._process.runs - self._runs if self._process and not self._over.done() else 0

    @property
    def answer_limits(self) -> AnswerLimits | None:
        return self._process.connection.answer_limits if self._process else None

    @property
    def arrivals(self) -> int:
        """Number of times bytes have arrived from the process, for all its sessions."""
        return self._process.connection.arrivals if self._process else 0

    def read_activity(self) -> Activity | None:
        return self._process.connection.read_activity() if self._process else None

    def place_on(self, machine: str) -> None:
        self._machine = machine

    def note_runs(self, count: int) -> None:
        if self._process is not None and not self._over.done():
            self._process.runs += count - self._runs
        self._runs = count

    def drain(self) -> None:
        if self._process is not None and not self._over.done():
            self._process.drain()

    async def open(self) -> None:
        """Begin to use a process. Raises UsageError if it cannot execute the session's runs."""
        process = self._enter()
        was_running = process.has_started
        try:
            await self._begin(process)
        except UsageError:
            if not (was_running and process.is_lost):
                raise
            # It was lost since its last use, which says nothing about the others.
            await self._begin(self._enter())

    def _enter(self) -> SharedProcess:
        self._process = process = self._processes.choose(self._machine, self._used)
        self._is_closed = self._has_begun = False
        self._arrived = Arrivals()
        self._over = asyncio.get_running_loop().create_future()
        self._used.append(process)
        self._number = process.attach(self)
        process.runs += self._runs
        return process

    async def _begin(self, process: SharedProcess) -> None:
        try:
            await process.open()
            if self._over.done():  # the process was lost, or the session is closing
                raise UsageError(self._describe_loss(), where="worker")
            self._opened = asyncio.get_running_loop().create_future()
            self._has_begun = True
            process.send(OpenPart(self._number))
            await self._opened
        except BaseException:
            await self.close()
            raise

    def _describe_loss(self) -> str:
        return f"no worker process: {self.loss or 'it has ended'}"

    def send(self, data: bytes) -> None:
        if self._process is not None and not self._over.done():
            self._process.send(PartBytes(self._number, data))

    def handle(self, message: FromShared) -> None:
        if isinstance(message, PartBytes):
            self._arrived.add(message.data)
        elif isinstance(message, SessionReady):
            if self._opened and not self._opened.done():
                self._opened.set_result(None)
        else:
            self._is_closed = True
            self.end()

    def end(self) -> None:
        """Give the part back: the process is lost, or it or the session has closed the part."""
        if self._process is None or self._over.done():
            return
        self._over.set_result(None)
        self._arrived.end()
        self._process.runs -= self._runs
        self._used.remove(self._process)
        self._process.detach(self._number)
        if self._opened and not self._opened.done():
            self._opened.set_exception(UsageError(self._describe_loss(), where="worker"))

    async def receive(self) -> bytes:
        return await self._arrived.receive()

    async def read_lease(self) -> float | None:
        return await self._process.connection.read_lease() if self._process else None

    def kill(self, reason: str) -> None:
        """End the process, which does not answer. All sessions' runs continue elsewhere."""
        if self._process is not None and not self._over.done():
            self._process.kill(reason)

    async def wait_until_stopped(self) -> None:
        """Wait until the process has stopped working for the session.

        If it still executes the session's runs, because a message from it was unusable, it is
        ended, with all sessions' parts.
        """
        if self._process is None or self._is_closed:
            return
        await self._process.end()

    async def close(self) -> None:
        """Close the session's part. It must have no runs."""
        if self._process is None or self._over.done():
            return
        self._is_closed = True
        try:
            if self._has_begun:
                self._process.send(ClosePart(self._number))
                await asyncio.wait((self._over,), timeout=_CLOSE_SECONDS)
        finally:
            self.end()
