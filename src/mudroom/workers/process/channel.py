"""Channel: msgpack frames over a socket pair."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from types import UnionType
from typing import Generic, TypeVar

import msgspec

from ..._core.json_values import clean_json

_LENGTH_BYTES = 4
_READ_SIZE = 1 << 18
_ENCODER = msgspec.msgpack.Encoder()

Received = TypeVar("Received")


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
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(received)
        self._unread = bytearray()
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
        body = encode(message)
        self._writer.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)

    async def receive(self) -> Received | None:
        """Return the next message, None when the other end is closed."""
        while not self._messages:
            try:
                data = await self._reader.read(_READ_SIZE)
            except ConnectionError:
                return None
            if not data:
                return None
            self._decode_frames(data)
        return self._messages.popleft()

    def _decode_frames(self, data: bytes) -> None:
        """Decode the frames that the data completes."""
        unread = self._unread
        unread += data
        start = 0
        while len(unread) >= (body := start + _LENGTH_BYTES):
            end = body + int.from_bytes(unread[start:body], "big")
            if len(unread) < end:
                break
            self._messages.append(self._decoder.decode(unread[body:end]))
            start = end
        del unread[:start]

    async def close(self) -> None:
        """Send all buffered messages and close this end."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return


def encode(value: object) -> bytes:
    """Return a value as msgpack, with its lone surrogates replaced."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # a lone surrogate in a file name or a model's text
        return _ENCODER.encode(clean_json(msgspec.to_builtins(value)))
