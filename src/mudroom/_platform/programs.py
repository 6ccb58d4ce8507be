"""Starts and ends programs with asyncio without losing their exit codes.

asyncio waits for each program in a thread. `Process.kill`, and a cancel while a program is
starting, poll the program in another thread. Whichever comes second finds no such process, and
asyncio logs "Unknown child process".
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from .processes import kill_process

_CHUNK = 1 << 16


async def start_program(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program like `asyncio.create_subprocess_exec`. A cancel first ends it."""
    starting = asyncio.create_task(asyncio.create_subprocess_exec(*command, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await end_program(await starting)
        raise


async def end_program(program: asyncio.subprocess.Process) -> None:
    """Kill a program if it is running, and wait for its end."""
    if program.returncode is None:
        kill_process(program.pid)
    # asyncio does not notice the end of a process whose pipes are not empty.
    for stream in (program.stdout, program.stderr):
        while stream and await stream.read(_CHUNK):
            pass
    await program.wait()
