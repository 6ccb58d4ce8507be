"""Output of the servers to a program that reads slowly, reads no more, or has gone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.waiting import SECONDS, block_until, wait_until

from mudroom_hosts.line_streams import LineOutput

PIPE_BYTES = 4096
SDK_FLAGS = ("-p", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json")
SDK_LINE = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}
SDK_REQUEST = {"type": "control_request", "request_id": "2", "request": {"subtype": "none"}}
ACP_REQUEST = {"jsonrpc": "2.0", "method": "none"}

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


@pytest.mark.parametrize(
    ("command", "first", "request_line"),
    [(("acp",), {}, ACP_REQUEST), (SDK_FLAGS, SDK_LINE, SDK_REQUEST)],
    ids=["acp", "agent_sdk"],
)
def test_a_signal_ends_a_server_whose_client_does_not_read(
    tmp_path: Path,
    pipe: Pipe,
    command: tuple[str, ...],
    first: object,
    request_line: dict[str, object],
) -> None:
    reads, writes = pipe
    process = subprocess.Popen(
        [sys.executable, "-m", "mudroom", *command],
        stdin=subprocess.PIPE,
        stdout=writes,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MUDROOM_MODEL": "offline"},
    )
    try:
        assert process.stdin
        lines = [first, *({**request_line, "id": number} for number in range(500))]
        process.stdin.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        process.stdin.flush()
        block_until(lambda: count_waiting(reads) > PIPE_BYTES // 2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + signal.SIGTERM
        assert b"Traceback" not in errors
    finally:
        process.kill()
        process.communicate()
