"""Main loop of a worker process that several sessions share."""

from __future__ import annotations

import asyncio
import gc
import os
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, cast

import msgspec

from ...._core.json_values import make_binary_decoder
from ...._peers import Mailbox, encode
from ....errors import MudroomError
from ..ray.node_check import list_unloaded, list_unseen
from ..remote.connection import MessageChannel, ToProcess
from ..remote.messages import StartFailed, ToWorker, WorkerConfig
from ..remote.shared_messages import (
    CloseSession,
    OpenSession,
    SessionClosed,
    SessionMessage,
    SessionOpened,
)

_CLOSED_PER_COLLECTION = 20
"""Closed sessions after which garbage is collected; the objects of a session refer to each other,
and the thresholds of this process are high."""
_FAILED = 1
"""Exit code after an error that is none of mudroom."""
_DECODER = make_binary_decoder(cast("type[WorkerConfig | ToWorker]", WorkerConfig | ToWorker))

Channel: TypeAlias = MessageChannel[ToProcess]


class SessionChannel(Mailbox[ToProcess]):
    """The port MessageChannel for one of the sessions of a shared process.

    Arguments:
        channel: that of the process.
    """

    def __init__(self, number: int, channel: Channel) -> None:
        super().__init__(lambda data: [_DECODER.decode(data)])
        self.number = number
        self._channel = channel

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; none is sent after `end`."""
        if not self.has_ended:
            self._channel.send(SessionMessage(self.number, encode(message)))

    def check_lease(self) -> None:
        """End the process at once if it may not work any more."""
        self._channel.check_lease()

    def start_beats(self) -> None:
        """Do nothing: the process does so for all its sessions."""


class SharedServer:
    """Sessions of one worker process.

    Arguments:
        channel: that of the process.
        serve: executes runs of a session until the end of its channel; its config comes first.
    """

    def __init__(
        self, channel: Channel, serve: Callable[[Channel], Coroutine[Any, Any, None]]
    ) -> None:
        self._channel = channel
        self._serve_session = serve
        self._sessions: dict[int, SessionChannel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed_count = 0

    async def serve(self) -> None:
        """Handle messages until the process of the sessions closes the channel."""
        self._channel.start_beats()
        while messages := await self._channel.receive_all():
            for message in messages:
                self._handle(message)

    def _handle(self, message: ToProcess) -> None:
        if isinstance(message, OpenSession):
            self._open(message)
        elif isinstance(message, SessionMessage):
            if session := self._sessions.get(message.number):
                session.add(message.data)
        elif isinstance(message, CloseSession) and message.number in self._sessions:
            self._sessions[message.number].end()

    def _open(self, message: OpenSession) -> None:
        session = SessionChannel(message.number, self._channel)
        self._sessions[message.number] = session
        task = asyncio.create_task(self._run(session, message))
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    async def _run(self, session: SessionChannel, message: OpenSession) -> None:
        unseen = list_unseen(message.nonces)
        # In a thread: a slow import must not look like a process that hangs.
        unloaded = await asyncio.to_thread(list_unloaded, message.import_path, message.tools)
        self._channel.send(SessionOpened(message.number, unseen, unloaded))
        try:
            await self._serve_session(session)
        except MudroomError as error:
            session.send(StartFailed(str(error)))
        session.end()
        del self._sessions[message.number]
        self._channel.send(SessionClosed(message.number))
        self._closed_count += 1
        if self._closed_count % _CLOSED_PER_COLLECTION == 0:
            gc.collect()

    def _finish(self, task: asyncio.Task[None]) -> None:
        """End the process after an unexpected error: nothing may go on with half a session."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            traceback.print_exception(error)
            os._exit(_FAILED)
