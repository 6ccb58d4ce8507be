"""Programs of hooks: each runs in a session and process group of its own, with a time limit."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import IO, cast

from msgspec import Struct

MAX_OUTPUT = 8 << 20
"""Bytes of one output that are kept; the program may write more."""
_CHUNK = 1 << 16
_CHECK_SECONDS = 0.05
"""Seconds between two looks whether the program has ended, or must end."""
_REST_SECONDS = 0.2
"""Seconds for output of other processes, after the end of the program itself."""
_KILL_SECONDS = 1.0
"""Seconds in which a killed process must have ended."""


class ProgramEnding(Struct, frozen=True):
    """End of a program.

    Arguments:
        code: exit code, negative for a signal; None if it did not end by itself.
        failure: why there is no exit code.
    """

    code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    failure: str = ""


class HookProgram:
    """One run of a program, in a thread; `stop` may be called from another one."""

    def __init__(
        self, command: str | Sequence[str], folder: str, environ: Mapping[str, str]
    ) -> None:
        is_line = isinstance(command, str)
        self._command = [_find_shell(), "-c", command] if is_line else list(command)
        self._folder = folder
        self._environ = environ
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Kill the program and the processes of its group."""
        self._stopped.set()

    def run(self, data: bytes, seconds: float) -> ProgramEnding:
        """Run the program to its end and return that; blocks the thread.

        Arguments:
            data: its standard input.
        """
        if self._stopped.is_set():
            return ProgramEnding(failure="it was stopped")
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env=dict(self._environ),
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            return ProgramEnding(failure=f"it cannot be started: {error}")
        pipes = _Pipes(process, data)
        try:
            failure = self._wait(process, pipes, time.monotonic() + seconds)
            if failure:
                failure = failure.format(seconds=seconds)
                _kill_group(process)
            return ProgramEnding(
                None if failure else process.returncode,
                bytes(pipes.outputs[process.stdout]),
                bytes(pipes.outputs[process.stderr]),
                failure,
            )
        finally:
            pipes.close()

    def _wait(self, process: subprocess.Popen[bytes], pipes: _Pipes, deadline: float) -> str:
        """Wait for the end. Return "", or why the program must be killed."""
        while True:
            pipes.transfer(_CHECK_SECONDS)
            if process.poll() is not None:
                rest = time.monotonic() + _REST_SECONDS
                while pipes.is_open and time.monotonic() < rest:
                    pipes.transfer(_CHECK_SECONDS)
                return ""
            if self._stopped.is_set():
                return "it was stopped"
            if time.monotonic() >= deadline:
                return "it did not end within {seconds:g} s"


@cache
def _find_shell() -> str:
    """Return the shell for a command line: lines in settings files are written for bash."""
    return shutil.which("bash") or "/bin/sh"


class _Pipes:
    """Pipes of a program. A pipe that the program closes is no error."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        self._process = process
        self._data = memoryview(data)
        self._selector = selectors.DefaultSelector()
        self.outputs: dict[IO[bytes] | None, bytearray] = {
            process.stdout: bytearray(),
            process.stderr: bytearray(),
        }
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            kind = selectors.EVENT_WRITE if stream is process.stdin else selectors.EVENT_READ
            self._selector.register(stream, kind)

    @property
    def is_open(self) -> bool:
        """True until both outputs have ended."""
        return any(stream and not stream.closed for stream in self.outputs)

    def transfer(self, seconds: float) -> None:
        """Move what can be moved now; wait for that up to `seconds`."""
        if not self._selector.get_map():
            # The program most likely ends now: `wait` looks after half a millisecond.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return
        for key, _ in self._selector.select(seconds):
            stream = key.fileobj
            if stream is self._process.stdin:
                self._write()
            else:
                self._read(cast("IO[bytes]", stream))

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            self._data = self._data[os.write(stream.fileno(), self._data[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._data = self._data[:0]
        if not self._data:
            self._end(stream)

    def _read(self, stream: IO[bytes]) -> None:
        try:
            chunk = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._end(stream)
            return
        output = self.outputs[stream]
        output += chunk[: MAX_OUTPUT - len(output)]

    def _end(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with suppress(OSError):
            stream.close()

    def close(self) -> None:
        """Close the pipes."""
        for stream in (self._process.stdin, *self.outputs):
            if stream is not None and not stream.closed:
                self._end(stream)
        self._selector.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all processes of its group, and wait for its end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)
