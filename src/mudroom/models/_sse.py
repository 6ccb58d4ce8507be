"""Parsers for server-sent events and lines of JSON: chunks of bytes in, the data of each out."""

from __future__ import annotations

from .._platform.lazy_pattern import compile_later

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_USUAL_DATA = compile_later(rb"(?:\A|\n\n)(?:event: [^\n]*\n)?data: ([^\n]*)(?=\n\n|\Z)")
"""The data of each event that has one line of data, and before it at most its name."""
_DATA = compile_later(rb"\ndata: ?([^\n]*)")


class SseParser:
    """Parser for one stream.

    Comments and all fields except `data` are ignored. Lines may end in LF, CRLF or CR.
    """

    def __init__(self) -> None:
        # The start of an event whose blank line has not arrived.
        self._parts: list[bytes] = []
        # A CR at the end of a chunk may be the first half of a CRLF.
        self._pending_cr = b""
        self._is_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that this chunk completes."""
        if self._pending_cr:
            chunk = self._pending_cr + chunk
            self._pending_cr = b""
        if b"\r" in chunk:
            if chunk.endswith(b"\r"):
                chunk = chunk[:-1]
                self._pending_cr = b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not chunk:
            return []
        parts = self._parts
        ends_blank_line = chunk[:1] == b"\n" and parts and parts[-1][-1:] == b"\n"
        parts.append(chunk)
        if b"\n\n" not in chunk and not ends_blank_line:
            return []
        complete, _, rest = b"".join(parts).rpartition(b"\n\n")
        self._parts = [rest] if rest else []
        return self._parse_events(complete)

    def flush(self) -> list[bytes]:
        """Return the last event if only its blank line is missing; its data may be incomplete."""
        return self._parse_events(b"".join(self._parts))

    def _parse_events(self, text: bytes) -> list[bytes]:
        if self._is_start:
            text = text.removeprefix(_BYTE_ORDER_MARK)
            self._is_start = False
        usual = _USUAL_DATA.findall(text)
        if len(usual) == text.count(b"\n\n") + 1:
            return usual
        lines = [_DATA.findall(b"\n" + event) for event in text.split(b"\n\n")]
        return [b"\n".join(data) for data in lines if data]


class LineParser:
    """Parser for one stream of JSON values, one on each line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line for line in lines if line.strip()]

    def flush(self) -> list[bytes]:
        """Return the last line without its end; it may be incomplete."""
        return [self._rest] if self._rest.strip() else []
