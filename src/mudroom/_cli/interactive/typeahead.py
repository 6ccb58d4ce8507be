"""Keys pressed before the prompt is drawn: collected without echo and passed to the prompt.

Keys pressed before the program could turn echo off appear on the screen as text, such as "^[[A"
for the Up key; `format_eraser` removes them.
"""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..output.text import ERASE_DOWN, measure_width

if TYPE_CHECKING:
    from prompt_toolkit.input.base import Input

# Indexes in the list that `termios.tcgetattr` returns.
_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3


@contextmanager
def hold_input(enabled: bool = True) -> Generator[str]:
    """Turn off the terminal's echo and line editing inside the block.

    Yields the keys pressed so far, as the terminal sends them; Enter is a line feed. The terminal
    is restored afterwards.
    """
    if not enabled:
        yield ""
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    raw = termios.tcgetattr(descriptor)
    # Without ICRNL, the prompt can tell Enter from Ctrl+J; without IXON, Ctrl+S is a key.
    raw[_INPUT_FLAGS] &= ~(termios.ICRNL | termios.IXON)
    raw[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, raw)
    early = os.read(descriptor, 1 << 16) if select.select([descriptor], [], [], 0)[0] else b""
    try:
        yield early.decode("utf-8", "replace").replace("\r", "\n")
    finally:
        with suppress(termios.error):  # The terminal was closed.
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def queue_keys(source: Input, early: str) -> None:
    """Make an application not yet running read early keys as its first input."""
    from prompt_toolkit.input.typeahead import store_typeahead
    from prompt_toolkit.input.vt100_parser import Vt100Parser
    from prompt_toolkit.key_binding import KeyPress

    keys: list[KeyPress] = []
    Vt100Parser(keys.append).feed_and_flush(early.replace("\n", "\r"))
    store_typeahead(source, keys)


def format_eraser(early: str, columns: int) -> str:
    """Make the text that erases the echo of early keys after the last Enter."""
    echo = early.rpartition("\n")[2]
    if not echo:
        return ""
    # Control characters are echoed as two: "^[" for Escape.
    width = sum(2 if character < " " else measure_width(character) for character in echo)
    rows = (width - 1) // columns
    return (f"\x1b[{rows}A" if rows else "") + f"\r{ERASE_DOWN}"
