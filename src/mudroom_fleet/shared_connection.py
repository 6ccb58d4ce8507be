"""SharedConnection: a session's part of a worker process that other sessions use, too."""

from __future__ import annotations

import asyncio

from mudroom.errors import UsageError
from mudroom.ports import Activity, AnswerLimits, Arrivals

from .shared_messages import CloseSession, FromShared, OpenSession, SessionBytes, SessionOpened
from .shared_processes import SharedProcess, SharedProcesses

_CLOSE_SECONDS = 1.5
"""Longest wait until a process has closed what it opened for a session."""


class SharedTransport:
    """The port WorkerTransport for one of several sessions that share worker processes.

    Arguments:
        processes: the worker processes; they outlive `close`.
    """

    is_shared = True

    def __init__(self, processes: SharedProcesses) -> None:
        self.kind = processes.transport.kind
        self.is_far = processes.transport.is_far
        self._processes = processes
        self._used: list[SharedProcess] = []

    def connect(self) -> SharedConnection:
        """Return a connection to a process that this session does not use yet, if there is one."""
        return SharedConnection(self._processes, self._used)

    async def close(self) -> None:
        """Do nothing: the processes are those of other sessions, too."""


class SharedConnection:
    """The port WorkerConnection for a session's part of a shared process.

    Arguments:
        used: processes that the session uses.
    """

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
        """Id of the process, None before `open`."""
        return self._process and self._process.connection.pid

    @property
    def host(self) -> str:
        """Name of its machine, "" before `open`."""
        return self._process.connection.host if self._process else ""

    @property
    def node(self) -> str:
        """Id of its node in a cluster, "" if there is none."""
        return self._process.connection.node if self._process else ""

    @property
    def loss(self) -> str:
        """Why the process was lost, "" if not known."""
        return self._process.loss if self._process else ""

    @property
    def is_draining(self) -> bool:
        """True if the process gets no further runs of any session."""
        return bool(self._process and self._process.is_draining and not self._over.done())

    @property
    def other_runs(self) -> int:
        """Number of runs of other sessions in the process."""
        return self._process.runs - self._runs if self._process and not self._over.done() else 0

    @property
    def answer_limits(self) -> AnswerLimits | None:
        """How long the process may be silent; None before `open`."""
        return self._process.connection.answer_limits if self._process else None

    @property
    def arrivals(self) -> int:
        """How many times bytes of the process have arrived, for all its sessions."""
        return self._process.connection.arrivals if self._process else 0

    def read_activity(self) -> Activity | None:
        """Return what the process does, None before `open`."""
        return self._process.connection.read_activity() if self._process else None

    def place_on(self, machine: str) -> None:
        """Use a process on this machine, or fail to open."""
        self._machine = machine

    def note_runs(self, count: int) -> None:
        """Note how many runs of the session the process has."""
        if self._process is not None and not self._over.done():
            self._process.runs += count - self._runs
        self._runs = count

    def drain(self) -> None:
        """Give the process no further runs of any session."""
        if self._process is not None and not self._over.done():
            self._process.drain()

    async def open(self) -> None:
        """Begin to use a process. Raises UsageError if it cannot execute runs of the session."""
        process = self._enter()
        was_running = process.has_started
        try:
            await self._begin(process)
        except UsageError:
            if not (was_running and process.is_lost):
                raise
            # It was lost since its last use: that says nothing about the others.
            await self._begin(self._enter())

    def _enter(self) -> SharedProcess:
        """Choose a process and take a part of it."""
        self._process = process = self._processes.choose(self._machine, self._used)
        self._is_closed = self._has_begun = False
        self._arrived = Arrivals()
        self._over = asyncio.get_running_loop().create_future()
        self._used.append(process)
        self._number = process.attach(self)
        process.runs += self._runs
        return process

    async def _begin(self, process: SharedProcess) -> None:
        """Start the process and the session's part of it."""
        try:
            await process.open()
            if self._over.done():  # the process was lost, or the session is closing
                raise UsageError(self._describe_loss(), where="workers")
            self._opened = asyncio.get_running_loop().create_future()
            self._has_begun = True
            process.send(OpenSession(self._number))
            await self._opened
        except BaseException:
            await self.close()
            raise

    def _describe_loss(self) -> str:
        return f"no worker process: {self.loss or 'it has ended'}"

    def send(self, data: bytes) -> None:
        """Send bytes of the session to the process."""
        if self._process is not None and not self._over.done():
            self._process.send(SessionBytes(self._number, data))

    def handle(self, message: FromShared) -> None:
        """Take a message of the process for the session."""
        if isinstance(message, SessionBytes):
            self._arrived.add(message.data)
        elif isinstance(message, SessionOpened):
            if self._opened and not self._opened.done():
                self._opened.set_result(None)
        else:
            self._is_closed = True
            self.end()

    def end(self) -> None:
        """Give the part back: the process is lost, has closed the part, or the session has."""
        if self._process is None or self._over.done():
            return
        self._over.set_result(None)
        self._arrived.end()
        self._process.runs -= self._runs
        self._used.remove(self._process)
        self._process.detach(self._number)
        if self._opened and not self._opened.done():
            self._opened.set_exception(UsageError(self._describe_loss(), where="workers"))

    async def receive(self) -> bytes:
        """Return the bytes that have arrived; none when the process is lost or closed."""
        return await self._arrived.receive()

    async def read_lease(self) -> float | None:
        """Return the seconds for which the process may work without a call; None for no lease."""
        return await self._process.connection.read_lease() if self._process else None

    def kill(self, reason: str) -> None:
        """End the process, which does not answer. The runs of all sessions continue elsewhere."""
        if self._process is not None and not self._over.done():
            self._process.kill(reason)

    async def wait_until_stopped(self) -> None:
        """Wait until the process does nothing more for the session.

        If it still executes its runs, because a message of it could not be used, it is ended, with
        the parts of all sessions.
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
                self._process.send(CloseSession(self._number))
                await asyncio.wait((self._over,), timeout=_CLOSE_SECONDS)
        finally:
            self.end()
