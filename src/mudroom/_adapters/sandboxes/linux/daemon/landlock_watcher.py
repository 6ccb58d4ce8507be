"""Tier file in the daemon: one watcher process per command. Standard library only.

A watcher kills all descendants of its command when the command ends or the client gives up, then
restores protected files and sends the outcome.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from ....._platform.processes import count_user_threads, kill_process, list_children, read_process
from .command_start import DEFAULT_SIGNALS, compute_limits, set_killed_first
from .protected_files import ProtectedFiles
from .protocol import DaemonSetup, Outcome, describe_error, receive_message, send_outcome

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_RESTRICT_SELF = 446
_FILTER_STEP_BYTES = 8
_FIRST_HIGH_DESCRIPTOR = 100
_NOT_STARTED = 126
_KILL_TIMEOUT = 2.0
_LIBC = ctypes.CDLL(None, use_errno=True)


class _SeccompProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def serve_commands(control: socket.socket, setup: DaemonSetup, *, ruleset: list[int]) -> None:
    """Start a watcher for each command until the client ends.

    Protected files are recorded whenever no command is running, as the user may change them between
    commands. `ruleset` has the descriptor of the Landlock ruleset, or is empty in tests.
    """
    setup.limits["processes"] += count_user_threads()
    protected = ProtectedFiles(
        setup.workspace, setup.quarantine, restore_existing=setup.restore_existing
    )
    running: set[int] = set()
    ended: set[int] = set()
    ended_read, ended_write = os.pipe()
    os.set_blocking(ended_read, False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: _reap_children(running))
    while True:
        message, pair = receive_message(control)
        if message is None:
            return
        try:
            ended = (ended | _read_ended(ended_read)) & running
            if running == ended:
                protected.take_snapshot()
        except OSError as error:
            os.close(pair[0])
            send_outcome(
                socket.socket(fileno=pair[1]), Outcome(-signal.SIGKILL, describe_error(error))
            )
            continue
        # A child that ended before being in `running` would look like an orphan.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            control.close()
            command = WatchedCommand(setup, message, ruleset, output=pair[0])
            _watch(command, socket.socket(fileno=pair[1]), protected, ended_write)
        running.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for descriptor in pair:
            os.close(descriptor)


def _read_ended(ended_read: int) -> set[int]:
    """Read which watchers' commands have ended, as written by `_watch`."""
    try:
        return {int(pid) for pid in os.read(ended_read, 1 << 16).split()}
    except BlockingIOError:
        return set()


def _reap_children(running: set[int]) -> None:
    """Reap ended children. Kill orphans that become our children: their watcher was killed."""
    has_orphans = False
    try:
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            pid, status = ended
            has_orphans |= status != 0 or pid not in running
            running.discard(pid)
    except ChildProcessError:
        return
    if has_orphans:
        for pid in set(list_children()) - running:
            kill_process(pid)


def _watch(
    command: WatchedCommand,
    result_socket: socket.socket,
    protected: ProtectedFiles,
    ended_write: int,
) -> NoReturn:
    """Run a command to its end, or until the client closes the socket; send the outcome."""
    outcome = Outcome(-signal.SIGKILL)
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        command.start()
        command.wait(result_socket)
        outcome = command.finish()
        outcome = outcome._replace(restored=protected.restore())
    except BaseException as error:  # noqa: BLE001  every error must reach the client
        outcome = outcome._replace(error=outcome.error or describe_error(error))
    # Tell the daemon before the client, because then the user may change files.
    os.write(ended_write, b"%d " % os.getpid())
    send_outcome(result_socket, outcome)
    os._exit(0)


class WatchedCommand:
    def __init__(
        self, setup: DaemonSetup, message: dict[str, Any], ruleset: list[int], *, output: int
    ) -> None:
        self._setup = setup
        self._argv: list[str] = message["argv"]
        self._env: dict[str, str] = message["env"]
        self._ruleset = ruleset
        self._output = output
        self._error_read, self._error_write = os.pipe()

    def start(self) -> None:
        watcher = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._become_command(watcher)
            except BaseException as error:  # noqa: BLE001  the watcher reads it from the pipe
                os.write(self._error_write, describe_error(error).encode())
            os._exit(_NOT_STARTED)
        os.close(self._error_write)
        os.close(self._output)

    def wait(self, result_socket: socket.socket) -> None:
        poll = select.poll()
        for descriptor in (os.pidfd_open(self._pid), result_socket.fileno()):
            poll.register(descriptor, select.POLLIN)
        poll.poll()

    def finish(self) -> Outcome:
        kill_process(self._pid)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        left = _kill_descendants()
        error = os.read(self._error_read, 500).decode("utf-8", "replace")
        return Outcome(code, error, left=left)

    def _become_command(self, watcher: int) -> NoReturn:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != watcher:
            os._exit(_NOT_STARTED)  # the watcher died before the signal was set
        stdio = [os.open(os.devnull, os.O_RDONLY), self._output, self._output]
        self._error_write, *ruleset = _keep_only(stdio, [self._error_write, *self._ruleset])
        set_killed_first()
        for kind, limit in compute_limits(self._setup.limits):
            resource.setrlimit(kind, (limit, limit))
        os.chdir(self._setup.workspace)
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if ruleset:
            _restrict(ruleset[0], bytes.fromhex(self._setup.seccomp_filter))
        os.execve(self._argv[0], self._argv, self._env)


def _keep_only(stdio: list[int], own: list[int]) -> list[int]:
    """Make `stdio` descriptors 0, 1 and 2, and close all others except `own`.

    Returns the new numbers of `own`; they are closed when the command starts.
    """
    high = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_HIGH_DESCRIPTOR)
        for descriptor in (*stdio, *own)
    ]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number, inheritable=number < len(stdio))
    os.closerange(len(high), os.sysconf("SC_OPEN_MAX"))
    return list(range(len(stdio), len(high)))


def _restrict(ruleset: int, code: bytes) -> None:
    """Drop capabilities, then apply the Landlock ruleset and the seccomp filter, irrevocably."""
    capability = 0
    while _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if _LIBC.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "Landlock rejects its ruleset")
    program = _SeccompProgram(len(code) // _FILTER_STEP_BYTES, code)
    if _LIBC.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel rejects the seccomp filter")


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def _kill_descendants() -> int:
    """Kill all descendants; return their number.

    Orphans become children of this process, so none escapes.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_TIMEOUT
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        for pid in list_children():
            # Dead ones were left by a process that has just been killed; they were not running.
            if (process := read_process(pid)) and not process.is_dead:
                kill_process(pid)
                killed.add(pid)
        time.sleep(0.001)
    return len(killed)
