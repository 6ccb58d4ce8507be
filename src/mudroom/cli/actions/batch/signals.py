"""Signals of a batch: Ctrl-C starts no further lines, a second one stops those that run.

SIGTERM and SIGHUP pause those that run at once: who sends them does not wait for lines to end.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ...output.signals import SIGNALS, exit_now


@contextmanager
def handle_batch_signals(
    stop: Callable[[], None], cancel: Callable[[], None], pause: Callable[[], None]
) -> Generator[list[int]]:
    """Call `stop` at the first Ctrl-C inside the block, `cancel` at the second.

    SIGTERM and SIGHUP call `pause`. A signal after `cancel` or `pause` ends the process at once:
    the next one continues the interrupted lines. Yield the list of received signals.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        interrupts = received.count(signal.SIGINT)
        if interrupts == len(received) == 1:
            stop()
        elif interrupts == len(received) == 2:
            cancel()
        elif number != signal.SIGINT and len(received) - interrupts == 1:
            pause()
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
