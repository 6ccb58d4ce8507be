"""Keys pressed before the prompt is there: kept as they are, not echoed, for the prompt to read."""

from __future__ import annotations

import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def held(wanted: bool = True) -> Generator[None]:
    """A block in which the terminal neither echoes nor changes what is typed; afterwards it is as it was."""
    descriptor = sys.stdin.fileno()
    if not wanted:
        yield
        return
    before = termios.tcgetattr(descriptor)
    raw = termios.tcgetattr(descriptor)
    raw[0] &= ~(termios.ICRNL | termios.IXON)
    raw[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, raw)
    try:
        yield
    finally:
        try:
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
        except termios.error:  # the terminal is gone
            pass
