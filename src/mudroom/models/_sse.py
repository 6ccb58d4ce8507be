"""Server-sent events: bytes in any pieces -> the data of each event."""

from __future__ import annotations


class SseParser:
    """One stream. Comments and every field but `data` are passed over; lines may end in LF, CRLF or CR."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._held = b""
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are complete with these bytes."""
        if self._held:
            chunk, self._held = self._held + chunk, b""
        if b"\r" in chunk:
            if chunk.endswith(b"\r"):
                chunk, self._held = chunk[:-1], b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:
            self._line.append(chunk)
            return []
        lines = chunk.split(b"\n")
        lines[0] = b"".join((*self._line, lines[0]))
        self._line = [lines.pop()]
        return self._take(lines)

    def flush(self) -> list[bytes]:
        """The event that lacked only its closing blank line when the stream ended; it may be a torn one."""
        return self._take([b"".join(self._line), b""])

    def _take(self, lines: list[bytes]) -> list[bytes]:
        if self._first and lines:
            lines[0], self._first = lines[0].removeprefix(b"\xef\xbb\xbf"), False
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif not line and data:
                events.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        return events
