"""Programs that a thread runs to their end, and that die with this process.

They share a process group. Its leader, a small shell, kills the group when the pipe to this process
closes, so not even `kill -9` of this process leaves a program behind.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import IO, BinaryIO

_LEADER = "trap '' HUP INT TERM; read -r _; kill -s KILL 0"

_LOOK_SECONDS = 0.25
"""Time between two looks at a program that runs."""

_END_SECONDS = 2.0
"""Time for a killed program to end; only the kernel can keep it longer."""

_STOP: ContextVar[threading.Event | None] = ContextVar("stop_programs", default=None)


class StoppedError(Exception):
    """A program that was killed because nobody waits for its output any more."""


@contextmanager
def stop_programs(stop: threading.Event) -> Generator[None]:
    """Kill the programs that this thread runs in the block as soon as an event is set."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


class _ProcessGroup:
    """The process group of all programs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leader: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def find_id(self) -> int:
        """Return the id of the group. Its leader is started, and started again if it is gone."""
        with self._lock:
            leader = self._leader
            # A fork has the leader of its parent; after setsid the group is in another session.
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
    """Run a program to its end. It is killed when this process ends, or the block above stops.

    Arguments:
        folder: where it starts. environ: its whole environment.
        data: standard input. read_from: file for it. write_to: file for the output.
        look: called with the process id while the program runs, four times a second. If it
            raises, the program is killed.

    Raises OSError if the program cannot be started, and StoppedError.
    """
    stop = _STOP.get()
    with ExitStack() as stack:
        if data:  # a pipe would have to be written while the output is read
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
    """Return the path of a program, "" if there is none.

    Arguments:
        path: folders to look in, as in the variable PATH; relative ones are ignored.
        ignored: folder whose programs are ignored, such as a workspace; "" for none. A command
            could have put one there.
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
