"""Channel: msgpack frames over a socket pair. `start_connected` starts the program at its end."""

from __future__ import annotations

import asyncio
import socket
from types import UnionType
from typing import Any, cast

from ...._peers import FrameDecoder, Mailbox, Outbox, Received, make_frame
from ...._platform.child_programs import end_program, start_program

_CLOSE_SECONDS = 2.0
_BEAT_SECONDS = 0.5
_BEAT = make_frame(())
"""A frame without messages. It comes from the event loop, so it stops when the loop does."""


class Channel(Mailbox[Received], asyncio.Protocol):
    """One end of a connection between two processes.

    Arguments:
        received: union type of the messages that arrive here.

    Attributes:
        arrivals: how many times bytes have arrived.
        send: sends a message, after all earlier ones; none is sent after a close.
    """

    def __init__(self, received: UnionType) -> None:
        super().__init__(FrameDecoder[Received](received).decode)
        self.arrivals = 0
        self._outbox = Outbox(self._write)
        self.send = self._outbox.add  # no method between: thousands of messages pass here
        self._loop = asyncio.get_running_loop()
        self._lost = self._loop.create_future()
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, connection: socket.socket, received: UnionType) -> Channel[Received]:
        """Open a channel on a connected socket."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: cls(received), sock=connection)
        return channel

    def _write(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame)

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
        self._outbox.flush()
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
        self.add(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, of whatever cause."""
        if not self._lost.done():
            self._lost.set_result(None)
        self.end()


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
