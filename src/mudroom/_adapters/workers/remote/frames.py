"""Frames: arrays of messages between two processes as msgpack, each with its length before it."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Generic, TypeVar, cast

import msgspec

from ...._core.json_values import clean_json, make_binary_decoder

_LENGTH_BYTES = 4
_ARRAY = b"\xdd"
"""Begin of an array in msgpack; four bytes with the number of its elements follow."""
_ENCODER = msgspec.msgpack.Encoder()

Received = TypeVar("Received")


def encode(value: object) -> bytes:
    """Return a value as msgpack, with its lone surrogates replaced."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # a lone surrogate in a file name or a model's text
        return _ENCODER.encode(clean_json(msgspec.to_builtins(value)))


def make_frame(messages: Sequence[bytes]) -> bytes:
    """Return the frame of encoded messages."""
    head = _ARRAY + len(messages).to_bytes(4, "big")
    length = len(head) + sum(map(len, messages))
    return b"".join((length.to_bytes(_LENGTH_BYTES, "big"), head, *messages))


def encode_frame(message: msgspec.Struct) -> bytes:
    """Return the frame of one message."""
    return make_frame((encode(message),))


class FrameDecoder(Generic[Received]):
    """Decoder of a stream of frames that may be cut anywhere.

    Arguments:
        received: union type of the messages that arrive.
    """

    def __init__(self, received: UnionType) -> None:
        self._decoder = make_binary_decoder(cast("type[list[Received]]", list[received]))
        self._unread = bytearray()

    def decode(self, data: bytes) -> list[Received]:
        """Return the messages whose frames the data completes. Raises msgspec.DecodeError."""
        unread = self._unread
        unread += data
        messages: list[Received] = []
        start = 0
        while len(unread) >= (body := start + _LENGTH_BYTES):
            end = body + int.from_bytes(unread[start:body], "big")
            if len(unread) < end:
                break
            messages += self._decoder.decode(unread[body:end])
            start = end
        del unread[:start]
        return messages
