"""Standard streams through which no one else's text can control the terminal.

Most text leaves a command through `print`, and few callers know who wrote the text: a model, a file
name, an operating system's message. So the streams themselves neutralise what is written to them,
even to a pipe, because `less -R` and `tee` pass everything on. Code that draws with its own escape
sequences says so with `draw`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO, cast

STREAM_NAMES = ("stdout", "stderr")


class SafeTextStream(io.TextIOWrapper):
    """Text stream that removes control characters and escape sequences from its output.

    Shares the buffer of `stream`, which stays open when this one is closed. `title` is the
    filename in OSErrors raised by writes.
    """

    def __init__(self, stream: io.TextIOWrapper, title: str = "stdout") -> None:
        super().__init__(
            stream.buffer,
            stream.encoding,
            "replace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._title = title
        self._stream = stream  # when collected, it would close the buffer

    def write(self, text: str, /) -> int:
        from ..._projections.safe_text import sanitize

        self.draw(sanitize(text))
        return len(text)

    def draw(self, text: str) -> None:
        try:
            super().write(text)
        except OSError as error:
            raise self._name_error(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._name_error(error) from None

    def _name_error(self, error: OSError) -> OSError:
        """Name the failed stream in the error: the system only says what happened."""
        error.filename = self._title
        return error

    def close(self) -> None:
        """Flush. The buffer belongs to the original stream."""
        self.flush()


def make_streams_safe() -> None:
    for name in STREAM_NAMES:
        stream: TextIO = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, SafeTextStream):
            stream.flush()
            setattr(sys, name, SafeTextStream(cast(io.TextIOWrapper, stream), name))


def draw(stream: TextIO, text: str) -> None:
    """Write text that mudroom laid out, with its colours and cursor moves.

    Others' text in it must already be sanitized; `paint` does that.
    """
    if isinstance(stream, SafeTextStream):
        stream.draw(text)
    else:
        stream.write(text)


def discard_stdout() -> None:
    """Redirect stdout to the null device, so that flushing it at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class StandardOutput:
    """Writes to stdout until it fails, then calls `on_closed` once."""

    def __init__(self, on_closed: Callable[[], object] = lambda: None) -> None:
        self._on_closed = on_closed
        self._is_open = True
        self.error = ""

    def write(self, data: bytes) -> None:
        """Write and flush. A closed pipe is not an error; `error` describes any other failure."""
        if not self._is_open:
            return
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError as error:
            self._is_open = False
            if not isinstance(error, BrokenPipeError):
                self.error = str(error.strerror)
            discard_stdout()
            self._on_closed()
