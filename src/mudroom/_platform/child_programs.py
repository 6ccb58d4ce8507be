"""Programs that a thread runs to completion, and that die with this process.

They share a process group whose leader, a small shell, kills the group when its pipe to this
process closes. Even `kill -9` of this process therefore leaves no program behind.

`start_program` and `end_program` are for asyncio, which waits for each program in a thread.
`Process.kill`, and a cancel while a program is starting, poll the program in another thread.
Whichever comes second finds no such process, and asyncio logs "Unknown child process".
"""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import IO, Any, BinaryIO

from .processes import kill_process

_LEADER = "trap '' HUP INT TERM; read -r _; kill -s KILL 0"

# Seconds between checks of a running program.
_LOOK_SECONDS = 0.25

# Time for a killed program to end; only the kernel can keep it longer.
_END_SECONDS = 2.0

_STOP: ContextVar[threading.Event | None] = ContextVar("stop_programs", default=None)


class StoppedError(Exception):
    pass


@contextmanager
def stop_programs(stop: threading.Event) -> Generator[None]:
    """Kill the programs that this thread runs inside the block, once an event is set."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


class _ProcessGroup:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leader: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def find_id(self) -> int:
        with self._lock:
            leader = self._leader
            # A forked process inherits the leader of its parent, which is not its own. And after
            # setsid the group belongs to another session, which a program cannot join.
            if leader is None or self._owner != os.getpid() or leader.poll() is not None:
                leader = self._start()
            elif os.getsid(leader.pid) != os.getsid(0):
                self._end()
                leader = self._start()
            return leader.pid

    def _start(self) -> subprocess.Popen[bytes]:
        if self._owner == 0:
            atexit.register(self._end)
        if self._leader:
            _close_pipes(self._leader)
        self._owner = os.getpid()
        self._leader = subprocess.Popen(
            ["/bin/sh", "-c", _LEADER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            process_group=0,
        )
        return self._leader

    def _end(self) -> None:
        if self._leader and self._owner == os.getpid():
            _close_pipes(self._leader)
            self._leader.wait()


_GROUP = _ProcessGroup()


def run_program(
    command: Sequence[str],
    *,
    folder: str,
    environ: Mapping[str, str],
    data: bytes = b"",
    read_from: BinaryIO | None = None,
    write_to: BinaryIO | None = None,
    look: Callable[[int], None] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end. It is killed if this process ends or `stop_programs` stops it.

    Arguments:
        environ: its complete environment.
        data: its standard input.
        read_from: a file to use as its standard input instead.
        look: called with the process id four times a second. If it raises, the program is killed.

    Raises OSError if the program cannot be started, and StoppedError.
    """
    stop = _STOP.get()
    with ExitStack() as stack:
        if data:  # a file, because a pipe would need feeding while the output is read
            read_from = stack.enter_context(tempfile.TemporaryFile())
            read_from.write(data)
            read_from.seek(0)
        process = subprocess.Popen(
            command,
            stdin=read_from or subprocess.DEVNULL,
            stdout=write_to or subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environ,
            process_group=_GROUP.find_id(),
        )
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(timeout=_LOOK_SECONDS)
                return subprocess.CompletedProcess(command, process.returncode, output, errors)
            if stop and stop.is_set():
                raise StoppedError
            if look:
                look(process.pid)
    finally:
        if process.returncode is None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        _close_pipes(process)


def find_program(name: str, path: str, ignored: str = "") -> str:
    """Find a program in the absolute folders of a PATH; "" if there is none.

    Skips programs below the folder `ignored`: in a workspace, a command could have put one.
    """
    prefix = f"{ignored.rstrip('/')}/" if ignored else ""
    for folder in path.split(os.pathsep):
        program = os.path.join(folder, name)
        is_ignored = prefix and os.path.realpath(program).startswith(prefix)
        if not os.path.isabs(folder) or is_ignored:
            continue
        if os.access(program, os.X_OK) and os.path.isfile(program):
            return program
    return ""


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    pipes: tuple[IO[bytes] | None, ...] = (process.stdin, process.stdout, process.stderr)
    for pipe in pipes:
        with suppress(OSError):
            if pipe:
                pipe.close()


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
