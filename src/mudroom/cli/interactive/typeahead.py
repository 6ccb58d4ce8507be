"""Keys pressed before the prompt is there: kept, from now on not echoed, for the prompt to read."""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def hold_input(enabled: bool = True) -> Generator[str]:
    """A block in which the terminal neither echoes nor changes what is typed; afterwards it is as it was.

    Gives what was typed before, when Enter was still a line feed. `wanted`: whether to do anything at all.
    """
    descriptor = sys.stdin.fileno()
    if not enabled:
        yield ""
        return
    before = termios.tcgetattr(descriptor)
    raw = termios.tcgetattr(descriptor)
    raw[0] &= ~(termios.ICRNL | termios.IXON)
    raw[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, raw)
    early = os.read(descriptor, 1 << 16) if select.select([descriptor], [], [], 0)[0] else b""
    try:
        yield early.decode("utf-8", "replace").replace("\r", "\n")
    finally:
        try:
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
        except termios.error:  # the terminal is gone
            pass
