"""Ctrl-C and SIGTERM: the first one stops the run and keeps its report, the second one leaves at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def handle_signals(stop: Callable[[], bool], *, exits_after: bool = False) -> Generator[list[int]]:
    """A block in which the first signal calls `stop`; the list says which signals came.

    Arguments:
        stop: asks the run to end; False when there is none, and then the process leaves at once, as for a second signal.
        last: the process ends after the block; once a signal came, a later one still makes it leave with the code of the first.
    """
    loop, seen = asyncio.get_running_loop(), list[int]()

    def arrived(number: int) -> None:
        first = not seen
        seen.append(number)
        if not (first and stop()):
            exit_now(128 + seen[0])

    def too_late(*_: object) -> None:
        exit_now(128 + seen[0])

    for number in SIGNALS:
        loop.add_signal_handler(number, arrived, number)
    try:
        yield seen
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            if exits_after and seen:
                signal.signal(number, too_late)


def exit_now(code: int) -> None:
    """End this process now. The journal is whole: nothing happens before it is recorded."""
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR + "\n")
        sys.stderr.flush()
    os._exit(code)
