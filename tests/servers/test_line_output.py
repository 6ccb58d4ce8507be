"""Output of the servers to a program that reads slowly, reads no more, or has gone."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from collections.abc import Generator
from contextlib import suppress

import pytest
from tests.waiting import SECONDS, wait_until

from mudroom_hosts.line_streams import LineOutput

PIPE_BYTES = 4096

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Generator[Pipe]:
    """Yield the two ends of a pipe, which holds one page where the system can make one."""
    ends = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def count_waiting(reads: int) -> int:
    return int.from_bytes(fcntl.ioctl(reads, termios.FIONREAD, bytes(4)), sys.byteorder)


def read_all(reads: int) -> bytes:
    return b"".join(iter(lambda: os.read(reads, 1 << 16), b""))


@pytest.mark.parametrize("is_blocking", [True, False])
async def test_lines_wait_for_a_reader_in_their_order(pipe: Pipe, *, is_blocking: bool) -> None:
    reads, writes = pipe
    os.set_blocking(writes, is_blocking)
    failures: list[str] = []
    output = LineOutput(writes, failures.append)
    lines = [str(number).encode() * 700 + b"\n" for number in range(100)]
    for line in lines:
        output.write(line)
    await wait_until(lambda: count_waiting(reads) > PIPE_BYTES // 2)
    reading = asyncio.create_task(asyncio.to_thread(read_all, reads))
    async with asyncio.timeout(SECONDS):
        await output.close()
        os.close(writes)
        assert await reading == b"".join(lines)
    assert failures == []


async def test_more_than_the_limit_closes_the_output_with_a_reason(pipe: Pipe) -> None:
    reads, writes = pipe
    failures: list[str] = []
    output = LineOutput(writes, failures.append, max_waiting=1 << 20)
    for _ in range(3):
        output.write(b"x" * (1 << 19) + b"\n")
    assert failures == ["the program that started mudroom does not read: more than 1 MiB waits"]
    output.write(b"late\n")
    async with asyncio.timeout(SECONDS):
        await output.drain()
        await output.close()
    assert len(failures) == 1
    os.close(reads)  # ends the thread, which waits for a reader


async def test_a_reader_that_has_gone_closes_the_output(pipe: Pipe) -> None:
    reads, writes = pipe
    failures: list[str] = []
    output = LineOutput(writes, failures.append)
    os.close(reads)
    output.write(b"x\n")
    async with asyncio.timeout(SECONDS):
        await output.drain()
    assert failures == [""]
    assert output.has_failed


async def test_a_close_waits_for_the_reader_unless_it_is_hurried(pipe: Pipe) -> None:
    reads, writes = pipe
    output = LineOutput(writes, print)
    output.write(b"x" * (1 << 20))
    closing = asyncio.create_task(output.close())
    await wait_until(lambda: count_waiting(reads) >= PIPE_BYTES)
    assert not closing.done()
    output.hurry()
    async with asyncio.timeout(SECONDS):
        await closing
    os.close(reads)
