"""Programs that asyncio starts. Neither a cancel nor their end makes asyncio lose their exit code.

asyncio waits for each program in a thread. `Process.kill`, and a cancel while a program starts,
poll the program in another thread. The one that comes second finds no such process, and asyncio
logs "Unknown child process".
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from .processes import kill_process

_CHUNK = 1 << 16


async def start_program(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program, as `asyncio.create_subprocess_exec` does. A cancel ends it first."""
    starting = asyncio.create_task(asyncio.create_subprocess_exec(*command, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await end_program(await starting)
        raise


async def end_program(program: asyncio.subprocess.Process) -> None:
    """Kill a program if it runs, and wait for its end."""
    if program.returncode is None:
        kill_process(program.pid)
    # asyncio does not see the end of a process whose pipes are not empty.
    for stream in (program.stdout, program.stderr):
        while stream and await stream.read(_CHUNK):
            pass
    await program.wait()
