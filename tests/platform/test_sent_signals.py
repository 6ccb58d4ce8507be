"""Test that a signal which a test sends leaves the exit code of the process alone."""

import asyncio
import signal

from tests.signals import send_signal


async def test_a_signal_to_a_process_that_just_ended_keeps_its_exit_code() -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
    while process.returncode is None:
        send_signal(process, signal.SIGURG)
        await asyncio.sleep(0)
    assert process.returncode == 7
