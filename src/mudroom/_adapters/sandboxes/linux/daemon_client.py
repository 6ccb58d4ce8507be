"""The client of the sandbox daemon: starts it, sends it commands, and reads their outcomes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...._core.ports import CommandResult
from ...._platform.orphan_cleanup import remove_orphans_in_background, remove_orphans_once
from ...._platform.patterns import compile_later
from ...._platform.processes import (
    Process,
    kill_process,
    list_children,
    list_processes,
    read_process,
)
from ...._platform.time_limits import time_limit
from ....errors import WorkspaceError
from ..output_pipe import OutputPipe
from .daemon.protocol import MAX_MESSAGE_BYTES, DaemonSetup, Outcome

_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from mudroom._adapters.sandboxes.linux.daemon.main import main; main()"
)
_SOURCE_DIR = str(Path(__file__).resolve().parents[4])
_DAEMON_LOST = (
    b"\n[sandbox: the process that runs the commands was stopped or has died, and this command was "
    b"killed. It is not known how much of it was done.]\n"
)
_END_TIMEOUT = 4.0  # seconds to wait for the outcome of a command that is being killed
_STOPPED_TIMEOUT = 1.0  # the same if the daemon was stopped by a signal or a debugger
_LOOK_SECONDS = 1.0  # between checks of whether the daemon is stopped, while a command runs
_STOPPED_LOOKS = 6
"""Checks that find the daemon stopped before it is killed: a debugger may stop it for a moment."""
_SEND_TIMEOUT = 1.0  # seconds to wait for a daemon that does not read; blocks the event loop
_EXIT_TIMEOUT = 1.0  # seconds for a daemon without commands to exit
_EXIT_POLL = 0.005
_KILL_ROUNDS = 5  # a daemon being killed may start a process meanwhile


class DaemonClient:
    """The client of a daemon.

    The daemon starts with the first command, and again if it has died. It ends with this object or
    this process.

    Arguments:
        ruleset: the descriptor of the Landlock ruleset in tier file.
        contents: in tier full, the seccomp filter and the contents of /etc.
    """

    def __init__(
        self,
        setup: DaemonSetup,
        *,
        tier: str,
        ruleset: int | None = None,
        contents: Sequence[bytes] = (),
    ) -> None:
        self._setup = setup
        self._tier = tier
        self._ruleset = ruleset
        self._contents = contents
        self._control: socket.socket | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._running: list[int] = []
        self.daemon_pid = 0

    async def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        timeout: float,
        sink: Callable[[bytes], None],
    ) -> CommandResult:
        """Run a program. Raises WorkspaceError, without running it, if the sandbox fails."""
        output_read, output_write = os.pipe()
        results, daemon_results = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            request = {"argv": [*argv], "env": {**env}}
            self._send(request, [output_write, daemon_results.fileno()])
        except BaseException:
            os.close(output_read)
            results.close()
            raise
        finally:
            os.close(output_write)
            daemon_results.close()
        self._running.append(output_read)
        try:
            return await self._wait_for_result(output_read, results, timeout, sink)
        finally:
            self._running.remove(output_read)
            results.close()

    async def _wait_for_result(
        self,
        output_read: int,
        results: socket.socket,
        timeout: float,
        sink: Callable[[bytes], None],
    ) -> CommandResult:
        finished = asyncio.Event()
        tail_sink = TailSink(sink)
        pipe = OutputPipe(output_read, tail_sink, finished)
        reader = _OutcomeReader(results, finished)
        timed_out = False
        try:
            try:
                async with time_limit(timeout):
                    await self._wait_until_finished(finished)
            except TimeoutError:
                timed_out = True
            finally:
                await self._end_command(reader)
        finally:
            pipe.close()
        if pipe.sink_error:
            raise pipe.sink_error
        outcome = reader.get_outcome()
        if outcome is None:
            # The daemon has died. Processes waiting at its gates still have to be killed.
            remove_orphans_in_background()
            outcome = Outcome(-signal.SIGKILL)
            if not timed_out:
                tail_sink(_DAEMON_LOST)
        if outcome.error:
            raise _explain_failed_start(outcome.error, tail_sink.tail)
        notes = make_notes(
            tail_sink.tail,
            code=outcome.code,
            restored=outcome.restored,
            tier=self._tier,
            workspace=self._setup.workspace,
        )
        if notes:
            tail_sink(notes)
        code = -signal.SIGKILL if timed_out else outcome.code
        return CommandResult(code, timed_out, 0 if timed_out else outcome.left)

    async def _wait_until_finished(self, finished: asyncio.Event) -> None:
        """Wait for a command to end, or until its daemon has been stopped for some seconds.

        A stopped daemon neither starts commands nor reports their end.
        """
        daemon, stopped_looks = self.daemon_pid, 0
        while not finished.is_set() and stopped_looks < _STOPPED_LOOKS:
            try:
                async with time_limit(_LOOK_SECONDS):
                    await finished.wait()
            except TimeoutError:
                stopped_looks = stopped_looks + 1 if _is_stopped(daemon) else 0

    async def _end_command(self, reader: _OutcomeReader) -> None:
        """Kill a running command. A daemon that fails to is killed with all its commands."""
        daemon = self.daemon_pid
        try:
            if await reader.end_command(_STOPPED_TIMEOUT):
                return
            if not _is_stopped(daemon) and await reader.end_command(
                _END_TIMEOUT - _STOPPED_TIMEOUT
            ):
                return
            _kill_daemon(daemon)
            if daemon == self.daemon_pid:
                self.close()
        finally:
            reader.close()

    def _send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        data = json.dumps(request).encode()
        if len(data) >= MAX_MESSAGE_BYTES // 4:
            raise WorkspaceError(
                "the command is too long for the sandbox", remedy="Write it to a file and run that."
            )
        try:
            socket.send_fds(self._control or self._start_daemon(), [data], descriptors)
        except OSError as error:
            # The daemon has died or hangs. It did not receive the request, so nothing has run.
            if isinstance(error, TimeoutError):
                _kill_daemon(self.daemon_pid)
            self.close()
            try:
                socket.send_fds(self._start_daemon(), [data], descriptors)
            except OSError as error:
                self.close()
                raise WorkspaceError(f"the sandbox cannot be started: {error.strerror}") from error

    def _start_daemon(self) -> socket.socket:
        control, daemon_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
        control.settimeout(_SEND_TIMEOUT)
        contents = [_make_memory_file(data) for data in self._contents]
        descriptors = contents if self._ruleset is None else [self._ruleset]
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _SOURCE_DIR],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, daemon_control.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
            )
            message = json.dumps(self._setup._asdict()).encode()
            socket.send_fds(control, [message], descriptors)
        except OSError as error:
            control.close()
            raise WorkspaceError(
                f"the sandbox cannot be started: {error.strerror}", where=sys.executable
            ) from error
        finally:
            daemon_control.close()
            for descriptor in contents:
                os.close(descriptor)
        remove_orphans_once()
        self.daemon_pid = pid
        self._control = control
        self._finalizer = weakref.finalize(self, _end_daemon, control, pid, self._running)
        return control

    def close(self) -> None:
        """End the daemon. Running commands continue to their own end."""
        if self._finalizer is not None:
            self._finalizer()
        self._control = None
        self._finalizer = None
        self.daemon_pid = 0


class _OutcomeReader:
    """Reads the outcome sent by the daemon or a watcher when a command ends."""

    def __init__(self, results: socket.socket, finished: asyncio.Event) -> None:
        self._results = results
        self._finished = finished
        self._data = b""
        self._is_complete = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        results.setblocking(False)
        self._loop.add_reader(results, self._read)

    def get_outcome(self) -> Outcome | None:
        """Return the outcome, or None if the daemon died before sending one."""
        return Outcome(**json.loads(self._data)) if self._data else None

    async def end_command(self, seconds: float) -> bool:
        """Kill a running command. Return False if part of it is left after the given time."""
        try:
            self._results.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            async with time_limit(seconds):
                await self._is_complete.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._loop.remove_reader(self._results)

    def _read(self) -> None:
        try:
            chunk = self._results.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._data += chunk
        if not chunk:
            self._loop.remove_reader(self._results)
            self._is_complete.set()
            self._finished.set()


def _explain_failed_start(error: str, output: bytes) -> WorkspaceError:
    last_line = output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return WorkspaceError(
        f"the command was not run: its sandbox could not be built ({last_line or error})",
        remedy="`mudroom doctor` names the missing parts. Commands run without a sandbox only with "
        "`--sandbox off`.",
    )


def _make_memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("mudroom", os.MFD_CLOEXEC)
    os.write(descriptor, data)
    return descriptor


def _end_daemon(control: socket.socket, pid: int, running: list[int]) -> None:
    """End the daemon, which exits after its last command; do not wait for that."""
    control.close()
    if running:
        threading.Thread(target=_wait_for_exit, args=(pid, 0), daemon=True).start()
        return
    deadline = time.monotonic() + _EXIT_TIMEOUT
    while not _wait_for_exit(pid, os.WNOHANG):
        if time.monotonic() >= deadline:
            _kill_daemon(pid)
            _wait_for_exit(pid, 0)
            return
        time.sleep(_EXIT_POLL)


def _wait_for_exit(pid: int, options: int) -> bool:
    """Reap a daemon. Return False if it has not ended."""
    try:
        return os.waitpid(pid, options)[0] == pid
    except ChildProcessError:
        return True


def _is_stopped(daemon: int) -> bool:
    own = map(read_process, (daemon, *list_children(daemon)))
    return any(process is not None and process.state in "Tt" for process in own)


def _kill_daemon(daemon: int) -> None:
    """Kill a daemon that does not answer, but first all its commands, which would outlive it."""
    if not daemon:
        return
    for _ in range(_KILL_ROUNDS):
        descendants = _list_descendants(daemon)
        if not descendants:
            break
        for process in descendants:
            kill_process(process.pid)
    kill_process(daemon)


def _list_descendants(pid: int) -> list[Process]:
    """List a process's living descendants; dead processes have no children."""
    below: dict[int, list[Process]] = {}
    for process in list_processes():
        if not process.is_dead:
            below.setdefault(process.parent, []).append(process)
    found = list(below.get(pid, ()))
    for process in found:
        found += below.get(process.pid, ())
    return found


_TAIL_BYTES = 4096
_REFUSAL = compile_later(
    rb"[Rr]ead-only file system|EROFS|Operation not permitted|EPERM|Permission denied|EACCES"
    rb"|Network is unreachable|ENETUNREACH|[Cc]ould not resolve|[Nn]ame resolution"
    rb"|[Nn]ame or service not known|Cannot assign requested address|EAI_AGAIN"
)
_NOT_FOUND = compile_later(
    rb"(?<![^\s:'\"])[^\s:'\"/]*+(/[^\s:'\"]++)['\"]?: No such file or directory"
)


class TailSink:
    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self.tail = b""

    def __call__(self, chunk: bytes) -> None:
        self.tail = (self.tail + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        self._sink(chunk)


def make_notes(
    tail: bytes, *, code: int, restored: Sequence[str], tier: str, workspace: str
) -> bytes:
    """Explain refusals and restored protected files to the model; b"" if there are none."""
    notes = [
        f"[sandbox: {path} is protected and may not be changed: what the command did to it was "
        "undone. Ask the user to do it.]"
        for path in restored
    ]
    if code != 0 and not restored and (_REFUSAL.search(tail) or _is_hidden(tail, workspace)):
        notes.append(
            f"[sandbox {tier}: commands may write only in {workspace} and in temporary folders, "
            "not to protected files (hooks and settings of git, agents, editors, shells), and "
            "reach neither the network nor other programs. If the command failed for that reason, "
            "do without it, or ask the user.]"
        )
    if not notes:
        return b""
    line_break = "" if tail.endswith(b"\n") or not tail else "\n"
    return f"{line_break}{chr(10).join(notes)}\n".encode()


def _is_hidden(tail: bytes, workspace: str) -> bool:
    """Return whether the output reports a path as missing that exists outside the sandbox."""
    paths = {os.fsdecode(path) for path in _NOT_FOUND.findall(tail)}
    inside = workspace.rstrip("/") + "/"
    return any(not path.startswith(inside) and os.path.lexists(path) for path in paths)
