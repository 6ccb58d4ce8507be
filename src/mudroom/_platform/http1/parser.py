"""Parses one HTTP/1.1 response: bytes in, head and body out, without I/O.

Some gateways compress bodies although the request forbids it.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

from ..patterns import compile_later

# Bytes of the status line and headers, including the interim responses before them.
_MAX_HEAD = 64 * 1024
# Header lines, counting continuation lines.
_MAX_HEADERS = 256
# Interim responses (1xx) before the real one.
_MAX_INTERIM = 16
# Bytes of the line before a chunk, or of a trailer.
_MAX_LINE = 4096
# Bytes of all chunk extensions and trailers of a response.
_MAX_EXTRA = 64 * 1024

_HEAD_END = compile_later(rb"\n\r?\n")
_LAST_CHUNK = b"0\r\n\r\n"
_STATUS_LINE = compile_later(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HEADER_NAME = compile_later(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = compile_later(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?")


class ResponseParser:
    """Parses one response.

    Follows RFC 9112: chunked bodies, bodies with a length, and bodies that end with the connection.
    Interim responses (1xx) are skipped. Chunk extensions and trailers are dropped.

    The result depends only on the bytes, never on how they are split: `feed` delivers every byte of
    the body before an error, and only then does `error` say what is wrong. Everything but the body
    is bounded in size.

    `status` is 0 until the head is complete. `headers` have lower-case names; the values of
    repeated ones are joined with ", ". In a tunnel, the response to CONNECT, success has no body.
    """

    __slots__ = (
        "_body_left",
        "_extra_left",
        "_head_left",
        "_in_trailers",
        "_interim_left",
        "_is_chunked",
        "_is_tunnel",
        "_pending",
        "error",
        "has_surplus",
        "headers",
        "is_complete",
        "is_reusable",
        "status",
    )

    def __init__(self, *, is_tunnel: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self.is_reusable = False
        self.has_surplus = False
        self.error: MalformedResponse | None = None
        self._head_left = _MAX_HEAD
        self._interim_left = _MAX_INTERIM
        self._extra_left = _MAX_EXTRA
        self._is_tunnel = is_tunnel
        self._is_chunked = False
        self._in_trailers = False
        # Missing bytes of the body or chunk. None: the body lasts until the connection ends or,
        # if chunked, the size of the next chunk is not yet known.
        self._body_left: int | None = None
        self._pending: bytes = b""

    def feed(self, data: bytes) -> bytes:
        """Parse bytes from the connection and return those that belong to the body.

        Sets `error` if they are malformed. Anything after an error is ignored.
        """
        if self.error is not None:
            return b""
        if not self.status:
            try:
                data = self._read_head(data)
            except MalformedResponse as error:
                self.error = error
            if not self.status:
                return b""
        if self.is_complete:
            self.has_surplus = self.has_surplus or bool(data)
            return b""
        if self._is_chunked:
            return self._read_chunks(data)
        if self._body_left is None:
            return data
        return self._read_body(data)

    def feed_end(self) -> None:
        """Handle the end of the connection.

        Raises MalformedResponse, or ConnectionLost if the response is incomplete.
        """
        if self.error is not None:
            raise self.error
        if not self.status:
            raise ConnectionLost("the server closed the connection without an answer")
        until_close = self._body_left is None and not self._is_chunked
        if not self.is_complete and not until_close:
            raise ConnectionLost("it ended before the answer did")
        self.is_complete = True
        self.is_reusable = False

    def _read_head(self, data: bytes) -> bytes:
        """Parse the head if it is complete, and return the bytes after it."""
        # The end of the head may have begun in the bytes already searched.
        searched = max(0, len(self._pending) - 2)
        data = self._pending + data
        self._pending = b""
        position = 0
        while (end := _HEAD_END.search(data, max(position, searched))) is not None:
            _check_protocol(data[position : position + 40])
            if end.start() - position > self._head_left:
                break
            head = data[position : end.start()].removesuffix(b"\r")
            self._head_left -= end.end() - position
            position = end.end()
            version, status, lines = _split_head(head)
            if status >= 200:
                self._set_head(version, status, _parse_headers(lines))
                return data[position:]
            self._skip_interim(status)
        data = data[position:]
        _check_protocol(data[:40])
        # A head of maximum size may be followed by the beginning of its end, LF and CR.
        if len(data) > self._head_left + 2 or end is not None:
            raise MalformedResponse(f"the headers are larger than {_MAX_HEAD:,} bytes")
        self._pending = data
        return b""

    def _skip_interim(self, status: int) -> None:
        if status == 101:
            raise MalformedResponse("the server switched to another protocol")
        if not self._interim_left:
            raise MalformedResponse(f"more than {_MAX_INTERIM} interim responses")
        self._interim_left -= 1

    def _set_head(self, version: int, status: int, headers: dict[str, str]) -> None:
        options = headers.get("connection", "").lower()
        self.is_reusable = "close" not in options and (version > 0 or "keep-alive" in options)
        coding = headers.get("transfer-encoding", "").lower()
        if status in (204, 304) or (self._is_tunnel and status < 300):
            self.is_complete = True
        elif coding:
            if coding != "chunked":
                raise MalformedResponse(f"unknown transfer encoding {coding!r}")
            self._is_chunked = True
            # Both headers together are a sign of request smuggling (RFC 9112, 6.3): do not trust
            # what comes next on this connection.
            self.is_reusable = self.is_reusable and "content-length" not in headers
        elif "content-length" in headers:
            self._body_left = _parse_length(headers["content-length"])
            self.is_complete = not self._body_left
        else:
            self.is_reusable = False
        self.headers = headers
        self.status = status

    def _read_body(self, data: bytes) -> bytes:
        left = self._body_left or 0
        self._body_left = max(0, left - len(data))
        self.is_complete = not self._body_left
        self.has_surplus = len(data) > left
        return data[:left] if self.has_surplus else data

    def _read_chunks(self, data: bytes) -> bytes:
        data = self._pending + data
        self._pending = b""
        parts: list[bytes] = []
        position = 0
        if self._body_left is None:
            position = _read_whole_chunks(data, parts)
            if data.startswith(_LAST_CHUNK, position):
                self.is_complete = True
                position += len(_LAST_CHUNK)
        try:
            while not self.is_complete:
                if self._body_left:
                    part = data[position : position + self._body_left]
                    if not part:
                        break
                    parts.append(part)
                    self._body_left -= len(part)
                    position += len(part)
                    continue
                end = data.find(b"\n", position)
                if (len(data) if end < 0 else end) - position > _MAX_LINE:
                    raise MalformedResponse(f"a chunk line is longer than {_MAX_LINE:,} bytes")
                if end < 0:
                    self._pending = data[position:]
                    break
                self._read_chunk_line(data[position:end])
                position = end + 1
        except MalformedResponse as error:
            self.error = error
        if self.is_complete:
            self.has_surplus = position < len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_chunk_line(self, line: bytes) -> None:
        """Parse a line between chunks: the end of one, the size of the next, or a trailer."""
        if self._in_trailers:
            self._count_extra(len(line))
            self.is_complete = line in (b"", b"\r")
        elif self._body_left == 0:
            if line not in (b"", b"\r"):
                raise MalformedResponse("a chunk is longer than its size")
            self._body_left = None
        else:
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None:
                raise MalformedResponse(f"not the size of a chunk: {line[:40]!r}")
            self._count_extra(len(line) - match.end(1))
            self._body_left = int(match[1], 16)
            self._in_trailers = not self._body_left

    def _count_extra(self, size: int) -> None:
        self._extra_left -= size
        if self._extra_left < 0:
            raise MalformedResponse(
                f"chunk extensions and trailers are larger than {_MAX_EXTRA:,} bytes"
            )


def _read_whole_chunks(data: bytes, parts: list[bytes]) -> int:
    """Quickly read the chunks that data starts with; return the position after them.

    This works only if all of them have the usual form and contain no CRLF: most servers write sizes
    this way, and events end their lines with LF. The last chunk is left out.
    """
    *pieces, _ = data.split(b"\r\n")
    chunks = pieces[1::2]
    if b"" in chunks:
        # An empty chunk ends the body: what follows is not part of the response.
        del chunks[chunks.index(b"") :]
    if pieces[: 2 * len(chunks) : 2] != [b"%x" % len(chunk) for chunk in chunks]:
        return 0
    parts += chunks
    return sum(map(len, pieces[: 2 * len(chunks)])) + 4 * len(chunks)


def _check_protocol(data: bytes) -> None:
    if not b"HTTP/1.".startswith(data[:7]):
        raise MalformedResponse(f"not an HTTP/1.1 response: {data!r}")


def _split_head(head: bytes) -> tuple[int, int, list[bytes]]:
    lines = head.replace(b"\r\n", b"\n").split(b"\n")
    match = _STATUS_LINE.fullmatch(lines[0])
    if match is None:
        raise MalformedResponse(f"not an HTTP/1.1 response: {lines[0][:40]!r}")
    return int(match[1]), int(match[2]), lines[1:]


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > _MAX_HEADERS:
        raise MalformedResponse(f"more than {_MAX_HEADERS} lines of headers")
    headers: dict[str, str] = {}
    name = ""
    for line in lines:
        if name and line[:1] in (b" ", b"\t"):
            # A folded line continues the value above it.
            headers[name] += f" {line.strip().decode('latin-1')}"
            continue
        name, value = _parse_header(line)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


@lru_cache(maxsize=64)
def _parse_header(line: bytes) -> tuple[str, str]:
    """Parse a header line. Cached, since most lines are the same in all responses of a server."""
    name, colon, value = line.partition(b":")
    if not colon or _HEADER_NAME.fullmatch(name) is None:
        raise MalformedResponse(f"not a header: {line[:40]!r}")
    return name.decode("ascii").lower(), value.strip().decode("latin-1")


def _parse_length(text: str) -> int:
    lengths = {part.strip() for part in text.split(",")}
    length = lengths.pop()
    if lengths or not (length.isascii() and length.isdecimal()) or len(length) > 15:
        raise MalformedResponse(f"not a length: {text[:40]!r}")
    return int(length)


class HttpError(Exception):
    """A request failed below HTTP; the text states the cause."""


class InvalidRequest(HttpError):
    pass


class CannotConnect(HttpError):
    pass


class TooManyOpenFiles(HttpError):
    pass


class ForbiddenAddress(HttpError):
    pass


class UntrustedServer(HttpError):
    pass


class SilentServer(HttpError):
    """The server sent no data for the read timeout."""


class ConnectionLost(HttpError):
    pass


class MalformedResponse(HttpError):
    """The response is not HTTP/1.1, or exceeds the limits of the parser."""


_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
# Leading bytes that identify a body's format.
_HEADER = 2
# Most bytes returned by one step; the rest waits until requested.
_MAX_PIECE = 256 * 1024
# Bytes allowed per compressed byte. JSON and HTML come to 5 to 30, zeros to 1,000.
_MAX_RATIO = 200
# Bytes a body may have at any ratio.
_ALWAYS_ALLOWED = 1024 * 1024


class Decompressor:
    """Decompresses a gzip or deflate body, one limited piece at a time.

    Raises MalformedResponse for an unsupported encoding, for damaged data, and before a
    body that expands too much fills the memory.
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
        return bool(self._waiting)

    def read(self, data: bytes = b"") -> bytes:
        """Take more data and return the next piece of the body, which may be empty."""
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
