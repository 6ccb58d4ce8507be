"""Parser of one HTTP/1.1 response: bytes in, head and body out. It does no I/O."""

from __future__ import annotations

from functools import lru_cache

from ..lazy_pattern import compile_later
from .errors import ConnectionLost, MalformedResponse

_MAX_HEAD = 64 * 1024
"""Bytes of the status line and all headers."""
_MAX_LINE = 4096
"""Bytes of the line before a chunk."""

_HEAD_END = compile_later(rb"\n\r?\n")
_LAST_CHUNK = b"0\r\n\r\n"
_STATUS_LINE = compile_later(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HEADER_NAME = compile_later(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = compile_later(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?")


class ResponseParser:
    """Parser of one response.

    Follows RFC 9112: chunked bodies, bodies with a length, and bodies that end with the connection.
    Interim responses (1xx) are skipped. Trailers are dropped.

    Arguments:
        is_tunnel: the response answers CONNECT, so a success has no body.

    Attributes:
        status: 0 until the head is complete.
        headers: by lower-case name; the values of a repeated header are joined with ", ".
        is_complete: true if the whole response has arrived.
        is_reusable: true if another request can use the connection afterwards.
        surplus: bytes after the end of the response.
    """

    __slots__ = (
        "_body_left",
        "_in_trailers",
        "_is_chunked",
        "_is_tunnel",
        "_pending",
        "headers",
        "is_complete",
        "is_reusable",
        "status",
        "surplus",
    )

    def __init__(self, *, is_tunnel: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self.is_reusable = False
        self.surplus = b""
        self._is_tunnel = is_tunnel
        self._is_chunked = False
        self._in_trailers = False
        # Bytes of the body or chunk that are missing; None: until the connection ends, or, in a
        # chunked body, the size of the next chunk is not known yet.
        self._body_left: int | None = None
        self._pending: bytes = b""

    def feed(self, data: bytes) -> bytes:
        """Read bytes of the connection and return the bytes of the body in them.

        Raises MalformedResponse.
        """
        if not self.status:
            data = self._read_head(self._pending + data)
            if not self.status:
                return b""
        if self.is_complete:
            self.surplus += data
            return b""
        if self._is_chunked:
            return self._read_chunks(data)
        if self._body_left is None:
            return data
        return self._read_body(data)

    def feed_end(self) -> None:
        """Read the end of the connection. Raises ConnectionLost if the response is incomplete."""
        if not self.status:
            raise ConnectionLost("the server closed the connection without an answer")
        until_close = self._body_left is None and not self._is_chunked
        if not self.is_complete and not until_close:
            raise ConnectionLost("it ended before the answer did")
        self.is_complete = True
        self.is_reusable = False

    def _read_head(self, data: bytes) -> bytes:
        """Read the head if it is complete, and return the bytes after it."""
        self._pending = b""
        while (end := _HEAD_END.search(data)) is not None:
            if end.start() > _MAX_HEAD:
                break
            version, status, lines = _split_head(data[: end.start()].removesuffix(b"\r"))
            data = data[end.end() :]
            if status >= 200:
                self._set_head(version, status, _parse_headers(lines))
                return data
            if status == 101:
                raise MalformedResponse("the server switched to another protocol")
        if len(data) > _MAX_HEAD:
            raise MalformedResponse(f"the headers are larger than {_MAX_HEAD:,} bytes")
        if not b"HTTP/1.".startswith(data[:7]):
            raise MalformedResponse(f"not an HTTP/1.1 response: {data[:40]!r}")
        self._pending = data
        return b""

    def _set_head(self, version: int, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        options = headers.get("connection", "").lower()
        self.is_reusable = "close" not in options and (version > 0 or "keep-alive" in options)
        coding = headers.get("transfer-encoding", "").lower()
        if status in (204, 304) or (self._is_tunnel and status < 300):
            self.is_complete = True
        elif coding:
            if coding != "chunked":
                raise MalformedResponse(f"unknown transfer encoding {coding!r}")
            self._is_chunked = True
            self.is_reusable = self.is_reusable and "content-length" not in headers
        elif "content-length" in headers:
            self._body_left = _parse_length(headers["content-length"])
            self.is_complete = not self._body_left
        else:
            self.is_reusable = False

    def _read_body(self, data: bytes) -> bytes:
        left = self._body_left or 0
        self._body_left = max(0, left - len(data))
        self.is_complete = not self._body_left
        self.surplus = data[left:]
        return data[:left] if self.surplus else data

    def _read_chunks(self, data: bytes) -> bytes:
        """Return the content of the chunks in the data."""
        data = self._pending + data
        self._pending = b""
        parts: list[bytes] = []
        position = 0
        if self._body_left is None:
            position = _read_whole_chunks(data, parts)
            if data.startswith(_LAST_CHUNK, position):
                self.is_complete = True
                position += len(_LAST_CHUNK)
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
            if end < 0:
                self._pending = data[position:]
                if len(self._pending) > _MAX_LINE:
                    raise MalformedResponse(f"a chunk line is longer than {_MAX_LINE:,} bytes")
                break
            self._read_chunk_line(data[position:end])
            position = end + 1
        if self.is_complete:
            self.surplus = data[position:]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_chunk_line(self, line: bytes) -> None:
        """Read the line between two chunks: the end of one, the size of the next, or a trailer."""
        if self._in_trailers:
            self.is_complete = line in (b"", b"\r")
        elif self._body_left == 0:
            if line not in (b"", b"\r"):
                raise MalformedResponse("a chunk is longer than its size")
            self._body_left = None
        else:
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None:
                raise MalformedResponse(f"not the size of a chunk: {line[:40]!r}")
            self._body_left = int(match[1], 16)
            self._in_trailers = not self._body_left


def _read_whole_chunks(data: bytes, parts: list[bytes]) -> int:
    """Add the content of the chunks that data begins with; return the position after them.

    Without the last chunk, and only if all of them have the usual form and no CRLF inside: most
    servers write sizes in this form, and events end their lines with LF.
    """
    *pieces, _ = data.split(b"\r\n")
    chunks = pieces[1::2]
    if chunks and not chunks[-1]:
        chunks.pop()
    if pieces[: 2 * len(chunks) : 2] != [b"%x" % len(chunk) for chunk in chunks]:
        return 0
    parts += chunks
    return sum(map(len, pieces[: 2 * len(chunks)])) + 4 * len(chunks)


def _split_head(head: bytes) -> tuple[int, int, list[bytes]]:
    """Return the minor version, the status, and the header lines."""
    lines = head.replace(b"\r\n", b"\n").split(b"\n")
    match = _STATUS_LINE.fullmatch(lines[0])
    if match is None:
        raise MalformedResponse(f"not an HTTP/1.1 response: {lines[0][:40]!r}")
    return int(match[1]), int(match[2]), lines[1:]


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
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
    """Return name and value of a header. Most lines are the same in each response of a server."""
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
