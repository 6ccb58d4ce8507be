"""Waits for facts that come from other processes: polls with a bound for busy machines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from mudroom._platform.processes import read_process

SECONDS = 60.0
"""Longest wait. It is not a measure: a machine with a load of 10 still finishes in it."""
_POLL_SECONDS = 0.01


async def wait_until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_true():  # noqa: ASYNC110  files and other processes send no notice
            await asyncio.sleep(_POLL_SECONDS)


def block_until(is_true: Callable[[], object]) -> None:
    """Wait until a condition is true, in a test without an event loop."""
    deadline = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"it is not so after {SECONDS:.0f} s"
        time.sleep(_POLL_SECONDS)


def is_alive(pid: int) -> bool:
    """Return True if the process runs; one that waits to be reaped does not."""
    process = read_process(pid)
    return process is not None and not process.is_dead


def find_processes(mark: str) -> list[str]:
    """Return the command lines that contain the mark."""
    lines: list[str] = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes() if process.name.isdecimal() else b""
        except OSError:
            continue
        line = words.replace(b"\0", b" ").decode(errors="replace")
        if mark in line:
            lines.append(f"{process.name} {line}")
    return lines
