"""Signals: Ctrl-C stops the run and keeps its report, SIGTERM and SIGHUP pause it; a second exits.

So does the first after some seconds, if the session is waiting for something that hangs.

A user who presses Ctrl-C no longer wants the work. A machine shutting down, a job being moved, or a
terminal closing says nothing of the kind, so a resume must bring the work back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from .standard_output import draw

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds for a session to end after a signal. A healthy one, with its processes, takes less than
# 2 s; a slower one is waiting for something that hangs, such as its database.
END_SECONDS = 10.0
_SHOW_CURSOR = "\x1b[?25h"
_NOT_ENDED = (
    f"mudroom: the session did not end within {END_SECONDS:g} s of the signal, so this process "
    "ends now, as after a kill. Earlier records are safe. To continue: mudroom resume\n"
)


@contextmanager
def handle_signals(
    stop: Callable[[], bool],
    pause: Callable[[], bool] | None = None,
    *,
    exits_after: bool = False,
    must_end: bool = False,
) -> Generator[list[int]]:
    """Call `stop` or `pause` at the first signal inside the block; yield the signals received.

    A second signal ends the process at once, as the first does if `stop` or `pause` returns False.
    SIGTERM and SIGHUP call `pause`, or `stop` without it. With `exits_after`, a signal after the
    block, if one came inside, ends the process with the exit code of the first. With `must_end`,
    the process ends if it is still running `END_SECONDS` after the first signal.
    """

    def give_up(received: Sequence[int]) -> None:
        draw(sys.stderr, _NOT_ENDED)
        exit_now(128 + received[0])

    def act(received: Sequence[int]) -> bool:
        end = stop if received[0] == signal.SIGINT or pause is None else pause
        if len(received) > 1 or not end():
            return False
        if must_end:
            # Also after the block, while the session closes.
            asyncio.get_running_loop().call_later(END_SECONDS, give_up, received)
        return True

    with catch_signals(act, exits_after=exits_after) as received:
        yield received


@contextmanager
def catch_signals(
    act: Callable[[Sequence[int]], bool], *, exits_after: bool = False
) -> Generator[list[int]]:
    """Call `act` at each signal with the signals so far; False ends the process at once."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if not act(received):
            exit_now(128 + received[0])

    def on_late_signal(*_: object) -> None:
        exit_now(128 + received[0])

    # An ignored signal, such as SIGHUP under nohup, stays ignored.
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield received
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            if exits_after and received:
                signal.signal(number, on_late_signal)


def exit_now(code: int) -> None:
    """End this process at once. The journal is complete: each step is recorded before it acts."""
    if sys.stderr.isatty():
        draw(sys.stderr, _SHOW_CURSOR + "\n")
        sys.stderr.flush()
    os._exit(code)
