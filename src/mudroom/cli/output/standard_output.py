"""Writer to stdout, for programs that read lines."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .progress import discard_stdout


class StandardOutput:
    """Writer to stdout until stdout fails.

    Arguments:
        on_closed: called once when stdout takes no more data.
    """

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
