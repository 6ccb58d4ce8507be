"""The program that starts walled-in commands: small, single-threaded, with an empty environment. Standard library only.

It reads messages from a socket on descriptor 0: first a setup, then one message a command. Each command gets a process of
its own to watch over it: it hears when the harness has gone or gives up (its wire ends), ends all descendants, undoes what
was done to protected names, and says how it went. `_launcher.py` is the other end.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from . import _drop
from ._agreed import MOST
from ._guard import Guard

_DEATH_SIGNAL, _DROP_BOUND, _SECCOMP, _NO_NEW_PRIVS, _SUBREAPER, _AMBIENT = 1, 24, 22, 38, 36, 47
_RESTRICT = 446
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def main() -> None:
    """Serve until the harness has gone."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup, fds = receive(control)
    if setup is None:
        return
    setup["swapped"] = _swapped(setup)
    gc.disable()  # a fork that collects copies every page it looks at
    serve(control, setup, fds)


def serve(control: socket.socket, setup: dict[str, Any], fds: list[int]) -> None:
    """Start a watcher for each command. The guard looks anew whenever nothing runs: between commands the workspace is the user's."""
    guard = Guard(setup["root"], setup["away"], restore=setup["restore"])
    running: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda _number, _frame: _reap(running))
    while True:
        message, pair = receive(control)
        if message is None:
            return
        if not running:
            guard.look()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            control.close()
            _watch(Command(setup, message, fds, pair[0]), socket.socket(fileno=pair[1]), guard)
        running.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for fd in pair:
            os.close(fd)


def receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message and its descriptors; None when there is none to come."""
    data, fds, _, _ = socket.recv_fds(control, MOST, 32)
    return (json.loads(data) if data else None), fds


def _swapped(setup: dict[str, Any]) -> int:
    """What root needs to run commands as another user, -1 where this is not root, or it cannot be had."""
    if not setup["late"] or os.geteuid() != 0:
        return -1
    try:
        owner = os.stat(setup["root"])
        return _drop.mapping(owner.st_uid, owner.st_gid)
    except OSError:
        return -1


def _reap(running: set[int]) -> None:
    while running:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        running.discard(pid)


def _watch(command: Command, wire: socket.socket, guard: Guard) -> NoReturn:
    """See one command through to its end, or to the end of the wire; then say how it went."""
    said: dict[str, Any] = {"failed": ""}
    try:
        _prctl(_SUBREAPER, 1)
        command.start()
        command.wait(wire)
        said = command.ended()
        said["mended"] = guard.mend()
    except BaseException as error:  # noqa: BLE001  whatever it is, the harness must hear it
        said["failed"] = said.get("failed") or f"{type(error).__name__}: {error}"
    try:
        wire.sendall(json.dumps(said).encode())
    except OSError:
        pass
    os._exit(0)


class Command:
    """One command: its process, and the pipes that tell how its start went."""

    def __init__(self, setup: dict[str, Any], message: dict[str, Any], data: list[int], output: int) -> None:
        self._setup, self._message, self._data, self._output = setup, message, data, output
        self._limits = setup["limits"]
        self._late: bool = setup["late"]
        self._status = b""

    def start(self) -> None:
        """Fork, and become the command there."""
        self._trouble, self._troubles = os.pipe()
        self._told, self._tells = os.pipe() if self._late else (-1, -1)
        self._gate, self._opens = os.pipe() if self._late else (-1, -1)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._become()
            except BaseException as error:  # noqa: BLE001  it is told through the pipe
                os.write(self._troubles, f"{type(error).__name__}: {error}".encode())
            os._exit(126)
        for fd in (self._troubles, self._output, self._tells, self._gate):
            if fd >= 0:
                os.close(fd)

    def wait(self, wire: socket.socket) -> None:
        """Wait for the end of the process or of the wire; meanwhile let it through the gate when its limits are set."""
        watch = os.pidfd_open(self._pid)
        poll = select.poll()
        for fd in (watch, wire.fileno(), *((self._told,) if self._late else ())):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._told in ready and not self._hear():
                poll.unregister(self._told)
            if wire.fileno() in ready or watch in ready:
                return

    def ended(self) -> dict[str, Any]:
        """Kill what is left, the process first; how it ended."""
        _kill(self._pid)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        _end_children()
        failed = os.read(self._trouble, 500).decode("utf-8", "replace")
        if self._late and not failed:
            while self._hear():
                pass
            failed = "" if b'"exit-code"' in self._status or code == -signal.SIGKILL else "the program that builds the walls gave up"
        return {"code": code, "failed": failed}

    def _hear(self) -> bool:
        """Read what bwrap says of its child; with the first line, limit the child and open the gate. False at its end."""
        chunk = os.read(self._told, 4096)
        first = b"\n" not in self._status
        self._status += chunk
        if first and b"\n" in self._status:
            child = int(json.loads(self._status.partition(b"\n")[0])["child-pid"])
            limit = self._limits["processes"]
            with _drop.beside(os.stat(f"/proc/{child}").st_uid):
                resource.prlimit(child, resource.RLIMIT_NPROC, (limit, limit))
            os.write(self._opens, b"x")
        return bool(chunk)

    def _become(self) -> NoReturn:
        os.setsid()
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        own = [self._tells, self._gate] if self._late else []
        wanted = [os.open(os.devnull, os.O_RDONLY), self._output, self._output, *own]
        wanted += [os.open(f"/proc/self/fd/{fd}", os.O_RDONLY) for fd in self._data[self._setup["restrict"] :]]
        swapped = [self._setup["swapped"]] if self._setup["swapped"] >= 0 else []
        self._troubles, *own = _only(wanted, [self._troubles, *self._data[: self._setup["restrict"]], *swapped])
        self._limit()
        argv = self._dropped(own[-1]) if swapped else self._message["argv"]
        if not self._late:
            os.chdir(self._setup["root"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if self._setup["restrict"]:
            _confine(own[0], bytes.fromhex(self._setup["filter"]))
        os.execve(argv[0], argv, self._message["env"])

    def _dropped(self, swapped: int) -> list[str]:
        """Become another user where the workspace can be made his; the arguments that fit. Root's own number else."""
        argv: list[str] = self._message["argv"]
        paths = [self._setup["root"], *self._setup["reach"]]
        try:
            places = _drop.stage(paths[0], paths[1:], swapped)
        except OSError:
            return argv
        _drop.become(_drop.NUMBER)
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        os.chdir("/")
        return _drop.moved(argv, paths, places)

    def _limit(self) -> None:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, b"1000")
        os.close(score)
        limits = self._limits
        pairs = [(resource.RLIMIT_DATA, "memory"), (resource.RLIMIT_FSIZE, "file"), (resource.RLIMIT_NOFILE, "open")]
        if not self._late:
            pairs.append((resource.RLIMIT_NPROC, "processes"))
        for kind, name in pairs:
            most = resource.getrlimit(kind)[1]
            limit = limits[name] if most == resource.RLIM_INFINITY else min(limits[name], most)
            resource.setrlimit(kind, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


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
        for pid in _children():
            _kill(pid)
        time.sleep(0.001)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without checkpoint support does not list them
        return [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and _parent(pid) == os.getpid()]


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
