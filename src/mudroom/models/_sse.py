"""Parsers for server-sent events and lines of JSON: chunks of bytes in, the data of each out."""

from __future__ import annotations


class SseParser:
    """Parser for one stream.

    Comments and all fields except `data` are ignored. Lines may end in LF, CRLF or CR.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        # A CR at the end of a chunk may be the first half of a CRLF.
        self._pending_cr = b""
        self._is_first_line = True

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
        if b"\n" not in chunk:
            self._line.append(chunk)
            return []
        lines = chunk.split(b"\n")
        lines[0] = b"".join((*self._line, lines[0]))
        self._line = [lines.pop()]
        return self._parse_lines(lines)

    def flush(self) -> list[bytes]:
        """Return the last event if only its blank line is missing; its data may be incomplete."""
        return self._parse_lines([b"".join(self._line), b""])

    def _parse_lines(self, lines: list[bytes]) -> list[bytes]:
        if self._is_first_line and lines:
            # Drop a UTF-8 byte order mark.
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._is_first_line = False
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
            elif line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
        return events


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
