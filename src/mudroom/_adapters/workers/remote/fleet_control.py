"""Files by which other processes ask a session about its worker processes and drain them."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import platform
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec import Struct

from ...._core.json_values import get_decoder
from ...._platform.private_files import make_private_folder
from ...._platform.regular_files import is_open_file

if TYPE_CHECKING:
    from .pool import WorkerPool
    from .worker_handle import WorkerHandle

log = logging.getLogger("mudroom")

_POLL_SECONDS = 0.1
_LOCK = "lock"
_REQUEST = "request-"
_ANSWER = "answer-"

T = TypeVar("T")


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """The state of a worker process at one moment.

    `number` counts the session's worker processes, from 1. `node` is its node in a Ray cluster,
    else "". A draining process gets no further runs, and ends after its last one. `running` are its
    runs that have begun, with the runs below them. It may work for `lease_seconds` without a call;
    None without a lease. `memory_bytes` is None if it does not answer.
    """

    number: int
    pid: int | None
    host: str
    node: str
    state: Literal["idle", "working", "draining"]
    running: tuple[str, ...]
    waiting: int
    lease_seconds: float | None
    memory_bytes: int | None


class FleetStatus(Struct, frozen=True, kw_only=True):
    """The worker processes of a session, whose own process has `pid` and `host`.

    `waiting` children have no worker process yet, because enough others are running.
    """

    session: str
    kind: str
    pid: int
    host: str
    waiting: int
    workers: tuple[WorkerStatus, ...]


class FleetRequest(Struct, frozen=True):
    """Another process's request to drain these worker processes; the reply is a FleetStatus."""

    drain: tuple[int, ...] = ()


class FleetFolder:
    """A session's files in the state folder. They are not part of its record."""

    def __init__(self, home: str, session: str) -> None:
        self.path = Path(home, "fleet", session)
        self._lock: int | None = None

    def open(self) -> bool:
        """Make the folder, and mark it as belonging to a working session. Raises OSError.

        Returns False if another process is looking at the folder just now: try again.
        """
        path = self.path / _LOCK
        try:
            make_private_folder(self.path)
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # removed by a process that found no session
            return False
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_open_file(path, descriptor):
                self._lock = descriptor
                return True
        os.close(descriptor)
        return False

    def close(self) -> None:
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None

    def has_session(self) -> bool:
        """Return whether the folder's session works. A killed session's folder is removed."""
        path = self.path / _LOCK
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                return False
            try:
                # A shared lock, so that two processes looking at once do not see each other.
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if is_open_file(path, descriptor):
                    self._remove(descriptor)
                    return False
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
            # Another process has since removed the file; a session may have made a new one.

    def _remove(self, descriptor: int) -> None:
        """Remove a killed session's folder; this process has locked its lock file.

        Only one process may do this at a time: a second could remove the next session's folder.
        """
        with suppress(OSError):
            parent = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(parent, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_open_file(self.path / _LOCK, descriptor):
                    shutil.rmtree(self.path, ignore_errors=True)
            finally:
                os.close(parent)

    def write_request(self, request: FleetRequest) -> str:
        name = uuid.uuid4().hex
        self._write(_REQUEST + name, request)
        return name

    def take_requests(self) -> dict[str, FleetRequest]:
        """Read the open requests, by name, and remove their files."""
        requests: dict[str, FleetRequest] = {}
        with suppress(OSError):
            for file in sorted(os.listdir(self.path)):
                if file.startswith(_REQUEST) and (request := self._take(file, FleetRequest)):
                    requests[file.removeprefix(_REQUEST)] = request
        return requests

    def write_answer(self, name: str, status: FleetStatus) -> None:
        self._write(_ANSWER + name, status)

    def take_answer(self, name: str) -> FleetStatus | None:
        """Read the answer to a request and remove its file; None if there is none yet."""
        return self._take(_ANSWER + name, FleetStatus)

    def withdraw(self, name: str) -> None:
        """Remove an unanswered request, and the folder if it is then empty."""
        with suppress(OSError):
            os.remove(self.path / (_REQUEST + name))
            os.rmdir(self.path)

    def _write(self, name: str, value: Struct) -> None:
        new = self.path / f".{name}"
        new.write_bytes(msgspec.json.encode(value))
        os.replace(new, self.path / name)

    def _take(self, name: str, kind: type[T]) -> T | None:
        path = self.path / name
        try:
            value = get_decoder(kind).decode(path.read_bytes())
        except OSError:
            return None
        except msgspec.DecodeError:  # written by another version
            value = None
        with suppress(OSError):
            os.remove(path)
        return value


def list_fleets(home: str) -> list[str]:
    try:
        names = sorted(os.listdir(Path(home, "fleet")))
    except OSError:
        return []
    return [name for name in names if FleetFolder(home, name).has_session()]


class FleetControl:
    """Reports the status of a session's worker processes on request, and drains them."""

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
        """Start answering requests, unless that has begun or there is no state folder."""
        if self._serving is None and self._home:
            self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
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
                with suppress(OSError):  # a full disk; the other process will report no answer
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
