"""Send signals to processes of asyncio."""

import asyncio
import contextlib
import os
import signal


def send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process that may end at this moment, and keep its exit code.

    `Process.send_signal` asks the kernel first whether the process has ended. If it has, that takes
    the exit code away from the event loop, which then reports 255.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
