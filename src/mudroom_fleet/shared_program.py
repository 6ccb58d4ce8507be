"""The program of a worker process shared by several sessions."""

from __future__ import annotations

import asyncio
import gc
import os
import traceback
from collections.abc import Callable, Coroutine
from pkgutil import resolve_name
from typing import Any, TypeAlias

from mudroom.ports import Arrivals, MessageStream, RunLink

from .messages import (
    ClosePart,
    OpenPart,
    PartBytes,
    PartClosed,
    SessionReady,
    ShareProcess,
    ToShared,
)

_CLOSED_PER_COLLECTION = 20
"""Closed sessions per garbage collection; a session's objects refer to each other, and this
process's thresholds are high."""
_FAILED = 1  # exit code after an error other than mudroom's

Program: TypeAlias = Callable[[RunLink], Coroutine[Any, Any, None]]


async def serve(link: RunLink) -> None:
    """Execute several sessions' runs until the other end closes the link."""
    stream = MessageStream[ToShared](link, ToShared)
    first = await stream.receive()
    if isinstance(first, ShareProcess):
        await _SharedServer(link, stream, resolve_name(first.program)).serve()


class _SessionLink(Arrivals):
    """The port RunLink for one session of a shared process."""

    def __init__(self, number: int, stream: MessageStream[ToShared], link: RunLink) -> None:
        super().__init__()
        self._number = number
        self._stream = stream
        self.check_lease = link.check_lease

    def send(self, data: bytes) -> None:
        """Send bytes; none are sent after `end`."""
        if not self.has_ended:
            self._stream.send(PartBytes(self._number, data))

    def start_beats(self) -> None:
        """Do nothing: the process sends beats for all its sessions."""


class _SharedServer:
    """A worker process's sessions; the program executes each one's runs until its link ends."""

    def __init__(self, link: RunLink, stream: MessageStream[ToShared], program: Program) -> None:
        self._link = link
        self._stream = stream
        self._program = program
        self._sessions: dict[int, _SessionLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed_count = 0

    async def serve(self) -> None:
        self._link.start_beats()
        while messages := await self._stream.receive_all():
            for message in messages:
                self._handle(message)

    def _handle(self, message: ToShared) -> None:
        if isinstance(message, OpenPart):
            self._open(message.number)
        elif isinstance(message, PartBytes):
            if session := self._sessions.get(message.number):
                session.add(message.data)
        elif isinstance(message, ClosePart) and message.number in self._sessions:
            self._sessions[message.number].end()

    def _open(self, number: int) -> None:
        self._sessions[number] = session = _SessionLink(number, self._stream, self._link)
        task = asyncio.create_task(self._run(number, session))
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    async def _run(self, number: int, session: _SessionLink) -> None:
        self._stream.send(SessionReady(number))
        await self._program(session)
        session.end()
        del self._sessions[number]
        self._stream.send(PartClosed(number))
        self._closed_count += 1
        if self._closed_count % _CLOSED_PER_COLLECTION == 0:
            gc.collect()

    def _finish(self, task: asyncio.Task[None]) -> None:
        # After an unexpected error, nothing may continue with half a session.
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            traceback.print_exception(error)
            os._exit(_FAILED)
