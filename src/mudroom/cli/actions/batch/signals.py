"""Signals of a batch: the first starts no further lines, the second stops those that run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ...output.signals import SIGNALS, exit_now


@contextmanager
def handle_batch_signals(
    stop: Callable[[], None], cancel: Callable[[], None]
) -> Generator[list[int]]:
    """Call `stop` at the first signal inside the block, `cancel` at the second.

    The third ends the process at once: the next one continues the interrupted lines. Yield the
    list of received signals.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            stop()
        elif len(received) == 2:
            cancel()
        else:
            exit_now(128 + received[0])

    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield received
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
