"""Channel: msgpack frames over a socket pair. `start_connected` starts the program at its end."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from types import UnionType
from typing import Any, Generic, cast

import msgspec

from ...._platform.programs import end_program, start_program
from ..remote.frames import FrameDecoder, Received, encode, make_frame

_CLOSE_SECONDS = 2.0
_BEAT_SECONDS = 0.5
_BEAT = make_frame(())
"""A frame without messages. It comes from the event loop, so it stops when the loop does."""


class Channel(asyncio.Protocol, Generic[Received]):
    """One end of a connection between two processes.

    Messages of one turn of the event loop are written together, so that the other process reads
    them together: a wake-up costs it as much as several messages.

    Arguments:
        received: union type of the messages that arrive here.

    Attributes:
        arrivals: how many times bytes have arrived.
    """

    def __init__(self, received: UnionType) -> None:
        self.arrivals = 0
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder[Received](received)
        self._messages: deque[Received] = deque()
        self._unread: list[bytes] = []
        self._unsent: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None
        self._lost = self._loop.create_future()
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, connection: socket.socket, received: UnionType) -> Channel[Received]:
        """Open a channel on a connected socket."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: cls(received), sock=connection)
        return channel

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Messages arrive in the order of the calls; none is sent after a close."""
        if self._transport.is_closing():
            return
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent.append(encode(message))

    def _write(self) -> None:
        if self._unsent and not self._transport.is_closing():
            self._transport.write(make_frame(self._unsent))
        self._unsent.clear()

    async def receive(self) -> Received | None:
        """Return the next message, None when the other end is closed."""
        await self._wait_for_messages()
        return self._messages.popleft() if self._messages else None

    async def receive_all(self) -> list[Received]:
        """Return the messages that have arrived, at least one; none when the end is closed."""
        await self._wait_for_messages()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    async def _wait_for_messages(self) -> None:
        """Wait until there is a message, or the other end is closed."""
        while not self._messages:
            if self._unread:
                data = b"".join(self._unread)
                self._unread.clear()
                self._messages.extend(self._decoder.decode(data))
            elif self._lost.done():
                return
            else:
                self._waiting = self._loop.create_future()
                await self._waiting

    def check_lease(self) -> None:
        """Do nothing: the process ends when the socket is closed."""

    def start_beats(self) -> None:
        """Send a frame without messages twice a second until this end is closed."""
        if self._transport.is_closing():
            return
        if not self._transport.get_write_buffer_size():
            self._transport.write(_BEAT)
        self._loop.call_later(_BEAT_SECONDS, self.start_beats)

    async def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Send all buffered messages and close this end.

        Arguments:
            seconds: longest time to send; then what is left is dropped. A stopped process reads
                nothing.
        """
        self._write()
        self._transport.close()
        if not (await asyncio.wait((self._lost,), timeout=seconds))[0]:
            self._transport.abort()
            await asyncio.shield(self._lost)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what the messages are written to."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Keep what arrives for `receive`."""
        self.arrivals += 1
        self._unread.append(data)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, of whatever cause."""
        if not self._lost.done():
            self._lost.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


async def start_connected(
    *command: str, received: UnionType, **options: Any
) -> tuple[asyncio.subprocess.Process, Channel[Any]]:
    """Start a program and return it with a channel to it. A cancel ends it first.

    Arguments:
        command: command line; the number of the program's socket is added.
        received: union type of the messages that arrive here.
        options: see `start_program`.
    """
    own_end, its_end = socket.socketpair()
    try:
        with its_end:
            process = await start_program(
                *command,
                str(its_end.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[its_end.fileno()],
                start_new_session=True,
                **options,
            )
    except BaseException:
        own_end.close()
        raise
    try:
        return process, await Channel[Any].open(own_end, received)
    except BaseException:
        own_end.close()
        await end_program(process)
        raise
