"""Compressed bodies, which some gateways send although the request forbids them."""

from __future__ import annotations

import zlib

from .errors import MalformedResponse

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
# Bytes that tell a body's format.
_HEADER = 2
# The most one step returns; the rest waits until it is asked for.
_MAX_PIECE = 256 * 1024
# Bytes allowed per compressed byte. JSON and HTML come to 5 to 30, zeros to 1,000.
_MAX_RATIO = 200
# Bytes a body may have whatever their ratio.
_ALWAYS_ALLOWED = 1024 * 1024


class Decompressor:
    """Decompresses a gzip or deflate body, one limited piece at a time.

    A body that expands too much raises MalformedResponse before it fills the memory.

    Arguments:
        encoding: the Content-Encoding. Raises MalformedResponse if it is not supported.
    """

    def __init__(self, encoding: str) -> None:
        if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
            raise MalformedResponse(
                f"the body is compressed ({encoding}) although the request forbids it"
            )
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._head = b""
        self._waiting = b""
        self._received = 0
        self._returned = 0

    @property
    def has_waiting(self) -> bool:
        """True if `read` may return more without further data."""
        return bool(self._waiting)

    def read(self, data: bytes = b"") -> bytes:
        """Take more data and return the next piece of the body, which may be empty.

        Raises MalformedResponse for damaged data and for a body that expands too much.
        """
        if self._received < _HEADER:
            self._head += data
            self._received += len(data)
            if self._received < _HEADER:
                return b""
            data = self._head
            if not _has_header(data):
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        else:
            self._received += len(data)
        try:
            piece = self._decompress(self._waiting + data)
        except zlib.error as error:
            raise MalformedResponse(f"the compressed body is damaged: {error}") from None
        self._returned += len(piece)
        if self._returned > max(_ALWAYS_ALLOWED, self._received * _MAX_RATIO):
            raise MalformedResponse(
                f"the compressed body expands to more than {_MAX_RATIO} times its size"
            )
        return piece

    def _decompress(self, data: bytes) -> bytes:
        piece = self._stream.decompress(data, _MAX_PIECE)
        if not self._stream.eof:
            self._waiting = self._stream.unconsumed_tail
            return piece
        # A gzip body may have several members, and zeros after the last one.
        self._waiting = self._stream.unused_data.lstrip(b"\0")
        if self._waiting:
            self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        return piece


def _has_header(data: bytes) -> bool:
    """Return whether data starts like gzip or zlib; some servers send deflate without a header."""
    is_zlib = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
    return data.startswith(b"\x1f\x8b") or is_zlib
