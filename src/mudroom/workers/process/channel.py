"""Channel: msgpack frames over a socket pair. `start_connected` starts the program at its end."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from types import UnionType
from typing import Any, Generic

import msgspec

from ..._platform.programs import end_program, start_program
from ..remote.frames import FrameDecoder, Received, encode_frame

_READ_SIZE = 1 << 18


class Channel(Generic[Received]):
    """One end of a connection between two processes.

    Arguments:
        received: union type of the messages that arrive here.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: UnionType
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder[Received](received)
        self._messages: deque[Received] = deque()

    @classmethod
    async def open(cls, connection: socket.socket, received: UnionType) -> Channel[Received]:
        """Open a channel on a connected socket."""
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_READ_SIZE)
        return cls(reader, writer, received)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Messages arrive in the order of the calls; none is sent after a close."""
        if self._writer.is_closing():
            return
        self._writer.write(encode_frame(message))

    async def receive(self) -> Received | None:
        """Return the next message, None when the other end is closed."""
        while not self._messages:
            try:
                data = await self._reader.read(_READ_SIZE)
            except ConnectionError:
                return None
            if not data:
                return None
            self._messages.extend(self._decoder.decode(data))
        return self._messages.popleft()

    def check_lease(self) -> None:
        """Do nothing: the process ends when the socket is closed."""

    async def close(self) -> None:
        """Send all buffered messages and close this end."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


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
