"""Keys pressed before the prompt is drawn: collected without echo and handed to the prompt."""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager

_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3
"""Indexes in the attribute list of `termios.tcgetattr`."""


@contextmanager
def hold_input(enabled: bool = True) -> Generator[str]:
    """Turn off echo and line editing of the terminal inside the block.

    Yields the text typed so far, with line feeds for Enter. The terminal is restored afterwards.

    Arguments:
        enabled: False to do nothing.
    """
    if not enabled:
        yield ""
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    raw = termios.tcgetattr(descriptor)
    raw[_INPUT_FLAGS] &= ~(termios.ICRNL | termios.IXON)
    raw[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, raw)
    early = os.read(descriptor, 1 << 16) if select.select([descriptor], [], [], 0)[0] else b""
    try:
        yield early.decode("utf-8", "replace").replace("\r", "\n")
    finally:
        try:
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
        except termios.error:  # The terminal was closed.
            pass
