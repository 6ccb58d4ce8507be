"""The program that starts walled-in commands: small, single-threaded, with an empty environment. Standard library only.

It reads messages from a socket on descriptor 0: first a setup, then one message a command, each with a wire. Commands in
namespaces of their own are all kept by one loop (`_walled.py`). Without, each gets a process to watch over it: it hears when
the harness has gone or gives up (its wire ends), ends all descendants, undoes what was done to protected names, and says how
it went. `_launcher.py` is the other end.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from .bwrap_supervisor import (
    DEFAULT_SIGNALS,
    CommandSupervisor,
    child_pids,
    describe_error,
    effective_limits,
    kill_process,
    receive_message,
    send_result,
)
from .protected_files import ProtectedFiles

_DEATH_SIGNAL, _DROP_BOUND, _SECCOMP, _NO_NEW_PRIVS, _SUBREAPER, _AMBIENT = 1, 24, 22, 38, 36, 47
_RESTRICT = 446
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def main() -> None:
    """Serve until the harness has gone."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    control = socket.socket(fileno=os.dup(0))
    os.set_inheritable(control.fileno(), False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup, fds = receive_message(control)
    if setup is None:
        return
    gc.disable()  # a fork that collects copies every page it looks at
    if setup["late"]:
        CommandSupervisor(setup, fds).serve(control)
    else:
        serve_commands(control, setup, fds)


def serve_commands(control: socket.socket, setup: dict[str, Any], fds: list[int]) -> None:
    """Start a watcher for each command. The guard looks anew whenever nothing runs: between commands the workspace is the user's."""
    guard = ProtectedFiles(setup["root"], setup["away"], restore_existing=setup["restore"])
    running, ended = set[int](), set[int]()
    over, tells = os.pipe()
    os.set_blocking(over, False)
    _prctl(_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: _reap(running))
    while True:
        message, pair = receive_message(control)
        if message is None:
            return
        try:
            ended = (ended | _told(over)) & running
            if running == ended:
                guard.take_snapshot()
        except OSError as error:
            os.close(pair[0])
            send_result(socket.socket(fileno=pair[1]), {"failed": describe_error(error)})
            continue
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            control.close()
            _watch(
                WatchedCommand(setup, message, fds, pair[0]),
                socket.socket(fileno=pair[1]),
                guard,
                tells,
            )
        running.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for fd in pair:
            os.close(fd)


def _told(over: int) -> set[int]:
    """Watchers whose commands are over, told before the harness hears it: from then on files are the user's, who may change them."""
    try:
        return {int(number) for number in os.read(over, 1 << 16).split()}
    except BlockingIOError:
        return set()


def _reap(running: set[int]) -> None:
    """Take the remains of who has ended. What falls to this process is of a watcher that was killed: it is killed too."""
    orphaned = False
    try:
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            orphaned |= ended[1] != 0 or ended[0] not in running
            running.discard(ended[0])
    except ChildProcessError:
        return
    if orphaned:
        for pid in set(child_pids()) - running:
            kill_process(pid)


def _watch(
    command: WatchedCommand, wire: socket.socket, guard: ProtectedFiles, over: int
) -> NoReturn:
    """See one command through to its end, or to the end of the wire; then say how it went."""
    said: dict[str, Any] = {"failed": ""}
    try:
        _prctl(_SUBREAPER, 1)
        command.start()
        command.wait(wire)
        said = command.finish()
        said["mended"] = guard.restore()
    except BaseException as error:  # noqa: BLE001  whatever it is, the harness must hear it
        said["failed"] = said.get("failed") or describe_error(error)
    os.write(over, b"%d " % os.getpid())
    send_result(wire, said)
    os._exit(0)


class WatchedCommand:
    """One command: its process, and the pipe that tells how its start went."""

    def __init__(
        self, setup: dict[str, Any], message: dict[str, Any], rules: list[int], output: int
    ) -> None:
        self._setup, self._message, self._rules, self._output = setup, message, rules, output

    def start(self) -> None:
        """Fork, and become the command there."""
        self._trouble, self._troubles = os.pipe()
        watcher, self._pid = os.getpid(), os.fork()
        if self._pid == 0:
            try:
                self._become(watcher)
            except BaseException as error:  # noqa: BLE001  it is told through the pipe
                os.write(self._troubles, f"{type(error).__name__}: {error}".encode())
            os._exit(126)
        os.close(self._troubles)
        os.close(self._output)

    def wait(self, wire: socket.socket) -> None:
        """Wait for the end of the process or of the wire."""
        poll = select.poll()
        for fd in (os.pidfd_open(self._pid), wire.fileno()):
            poll.register(fd, select.POLLIN)
        poll.poll()

    def finish(self) -> dict[str, Any]:
        """Kill what is left, the process first; how it ended."""
        kill_process(self._pid)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        _end_children()
        return {"code": code, "failed": os.read(self._trouble, 500).decode("utf-8", "replace")}

    def _become(self, watcher: int) -> NoReturn:
        os.setsid()
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != watcher:
            os._exit(126)  # it had died before it could be the one to die with
        wanted = [os.open(os.devnull, os.O_RDONLY), self._output, self._output]
        self._troubles, *rules = _only(wanted, [self._troubles, *self._rules])
        self._limit()
        os.chdir(self._setup["root"])
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if rules:
            _confine(rules[0], bytes.fromhex(self._setup["filter"]))
        argv: list[str] = self._message["argv"]
        os.execve(argv[0], argv, self._message["env"])

    def _limit(self) -> None:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
        for kind, limit in effective_limits(self._setup["limits"]):
            resource.setrlimit(kind, (limit, limit))


def _only(wanted: list[int], own: list[int]) -> list[int]:
    """Make `wanted` descriptors 0, 1, 2 …; nothing else that is open here reaches the command. The new numbers of `own`."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in (*wanted, *own)]
    for n, fd in enumerate(high):
        os.dup2(fd, n, inheritable=n < len(wanted))
    os.closerange(len(high), os.sysconf("SC_OPEN_MAX"))
    return list(range(len(wanted), len(high)))


def _confine(ruleset: int, code: bytes) -> None:
    """Give up capabilities, then everything Landlock and the filter refuse, for good."""
    for capability in range(64):
        if _LIBC.prctl(_DROP_BOUND, capability, 0, 0, 0) != 0:
            break
    _LIBC.prctl(_AMBIENT, 4, 0, 0, 0)
    _prctl(_NO_NEW_PRIVS, 1)
    if _LIBC.syscall(_RESTRICT, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "Landlock refuses its rules")
    program = _Filter(len(code) // 8, code)
    if _LIBC.prctl(_SECCOMP, 2, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses the filter")


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} is refused")


def _end_children() -> None:
    """Kill all descendants: whoever loses its parent becomes a child of this process, so none gets away."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in child_pids():
            kill_process(pid)
        time.sleep(0.001)
