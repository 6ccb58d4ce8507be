"""Tier full in the launching program: one loop starts every command, sees it through and says how it went. Standard library only.

Nothing forks here but by `posix_spawn`: a copy of this program, twice a command, took longer than most commands do. What a
fork could have done between its birth and the command is done by bwrap, or by this loop while bwrap waits at the gate.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
from collections.abc import Callable, Generator
from typing import Any

from ...._platform.scratch_dirs import ScratchDir
from .. import idmapped_mount
from .protected_files import ProtectedFiles
from .protocol import (
    ETC_PLACEHOLDER,
    FILTER_FD,
    GATE_FD,
    MARK_VARIABLE,
    MAX_MESSAGE_BYTES,
    STATUS_FD,
)

_SUBREAPER = 36
_OWN = 100
"""Our own descriptors are this and higher, so that a command's never meet them."""

_LIMITS = {
    "memory": resource.RLIMIT_DATA,
    "file": resource.RLIMIT_FSIZE,
    "open": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
"""Signals that a program finds as they are by themselves, whatever this one does with them."""

_CHILD, _ENDED = re.compile(rb'"child-pid": (\d+)'), re.compile(rb'"exit-code": (\d+)')
_LIBC = ctypes.CDLL(None, use_errno=True)


def receive_message(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message and its descriptors; None when there is none to come."""
    data, fds, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 32, socket.MSG_CMSG_CLOEXEC)
    return (json.loads(data) if data else None), fds


class RunningCommand:
    """One command on its way.

    `builder` is bwrap; `first` the first process inside the walls, with which all others end: 0 until bwrap has told its number.
    """

    def __init__(self, wire: socket.socket, status_fd: int, gate_fd: int, bwrap_pid: int) -> None:
        self.wire, self.told, self.opens, self.builder = wire, status_fd, gate_fd, bwrap_pid
        self.init_pid, self.status_text, self.is_stopped, self.error = 0, b"", False, ""

    def make_result(self) -> dict[str, Any]:
        """How it went, when it is over."""
        ended = _ENDED.search(self.status_text)
        if ended and not self.is_stopped:
            return {"code": int(ended[1]), "failed": ""}
        why = self.error or "the program that builds the walls gave up"
        return {"code": -signal.SIGKILL, "failed": "" if self.is_stopped else why}


class CommandSupervisor:
    """All commands of one sandbox.

    Arguments:
        setup: what the harness said first. data: descriptors of the filter, and of what /etc holds.
    """

    def __init__(self, setup: dict[str, Any], data: list[int]) -> None:
        _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
        self._guard = ProtectedFiles(setup["root"], setup["away"], restore_existing=False)
        self._stage = (
            idmapped_mount.IdmappedMounts([setup["root"], *setup["reach"]])
            if setup["other"]
            else None
        )
        self._etc = _etc(dict(zip(setup["etc"], data[1:], strict=True)))
        self._filter = (
            os.POSIX_SPAWN_OPEN,
            FILTER_FD,
            f"/proc/self/fd/{_high(data[0])}",
            os.O_RDONLY,
            0,
        )
        self._limits = effective_limits(setup["limits"])
        self._running: set[RunningCommand] = set()
        self._poll, self._heard = select.poll(), dict[int, Callable[[], object]]()
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def serve(self, control: socket.socket) -> None:
        """Until the harness has gone, and what it began has ended."""
        self._on(control.fileno(), lambda: self._next(control))
        while self._heard:
            for fd, _ in self._poll.poll():
                if hear := self._heard.get(fd):
                    hear()
        self._etc.remove()

    def _next(self, control: socket.socket) -> None:
        """Begin a command. The guard looks anew whenever nothing runs: between commands the workspace is the user's."""
        message, pair = receive_message(control)
        if message is None:
            self._off(control.fileno())
            control.close()
            return
        output, wire = _high(pair[0]), socket.socket(fileno=_high(pair[1]))
        try:
            if not self._running:
                self._guard.take_snapshot()
            self._begin(message["argv"], output, wire)
        except OSError as error:
            send_result(wire, {"failed": describe_error(error)})
        finally:
            os.close(output)

    def _begin(self, argv: list[str], output: int, wire: socket.socket) -> None:
        told, tells = map(_high, os.pipe())
        os.set_blocking(told, False)
        waits, opens = map(_high, os.pipe())
        gate = _high(
            os.open(f"/proc/self/fd/{waits}", os.O_RDWR)
        )  # it holds its own other end: should we die, it waits for ever
        copies = {1: output, 2: output, STATUS_FD: tells, GATE_FD: gate}
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, fd, n) for n, fd in copies.items()),
        ]
        try:
            builder = self._spawn(argv, [*files, self._filter])
        except OSError:
            os.close(told)
            os.close(opens)
            raise
        finally:
            for fd in (tells, waits, gate):
                os.close(fd)
        command = RunningCommand(wire, told, opens, builder)
        self._running.add(command)
        self._on(told, lambda: self._hear(command))
        self._on(wire.fileno(), lambda: self._stop(command))
        self._when_gone(builder, lambda: self._built(command))

    def _spawn(self, argv: list[str], files: list[Any]) -> int:
        """Start bwrap, as the first to be killed when memory runs out, and as another user where it shall be.

        It dies with us, but only some milliseconds after its start, so it bears our mark for the sweep: else it waited for ever.
        """
        argv = self._stage.rewrite_binds(argv) if self._stage else argv
        argv[argv.index(ETC_PLACEHOLDER)] = self._etc.path
        with (
            _hated(),
            idmapped_mount.as_user(idmapped_mount.SANDBOX_UID if self._stage else os.geteuid()),
        ):
            return os.posix_spawn(
                argv[0],
                argv,
                {MARK_VARIABLE: f"{self._etc.path}/"},
                file_actions=files,
                setsigdef=DEFAULT_SIGNALS,
                setsigmask=(),
            )

    def _hear(self, command: RunningCommand) -> int:
        """Take what bwrap says, and when it has told the number of its child, let that in; how much it said."""
        try:
            chunk = os.read(command.told, 4096)
        except BlockingIOError:
            return 0
        if not chunk:
            self._off(command.told)
        command.status_text += chunk
        if not command.init_pid and (number := _CHILD.search(command.status_text)):
            command.init_pid = int(number[1])
            self._let_in(command)
        return len(chunk)

    def _let_in(self, command: RunningCommand) -> None:
        """Limit the first process, then open the gate for it."""
        try:
            with idmapped_mount.as_user(os.stat(f"/proc/{command.init_pid}").st_uid):
                for kind, limit in self._limits:
                    resource.prlimit(command.init_pid, kind, (limit, limit))
            os.write(command.opens, b"x")
        except (FileNotFoundError, ProcessLookupError):
            pass  # bwrap says why in its own words
        except OSError as error:
            command.error = describe_error(error)
            kill_process(command.builder)

    def _built(self, command: RunningCommand) -> None:
        """bwrap has gone: so must all that is behind its walls. It may have been killed before it told what that is."""
        while self._hear(command):
            pass
        self._off(command.told)
        os.close(command.told)
        os.close(command.opens)
        kill_process(command.init_pid)
        if not command.init_pid:
            known = {pid for one in self._running for pid in (one.builder, one.init_pid)}
            for pid in set(child_pids()) - known:
                kill_process(pid)
                os.waitpid(pid, 0)
        self._when_gone(command.init_pid, lambda: self._over(command))

    def _stop(self, command: RunningCommand) -> None:
        """The harness gives up, or has gone."""
        self._off(command.wire.fileno())
        command.is_stopped = True
        kill_process(command.init_pid)
        kill_process(command.builder)

    def _when_gone(self, pid: int, then: Callable[[], None]) -> None:
        """Call `then` when that process has ended, and take its remains, which may have fallen to us."""
        try:
            watch = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            watch = -1
        if watch < 0:
            then()
            return

        def gone() -> None:
            self._off(watch)
            os.close(watch)
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
            then()

        self._on(watch, gone)

    def _over(self, command: RunningCommand) -> None:
        self._off(command.wire.fileno())
        self._running.discard(command)
        said = command.make_result()
        try:
            said["mended"] = self._guard.restore()
        except Exception as error:  # noqa: BLE001  whatever it is, other commands go on
            said["failed"] = said["failed"] or describe_error(error)
        send_result(command.wire, said)

    def _on(self, fd: int, hear: Callable[[], object]) -> None:
        self._heard[fd] = hear
        self._poll.register(fd, select.POLLIN)

    def _off(self, fd: int) -> None:
        if self._heard.pop(fd, None):
            self._poll.unregister(fd)


def _etc(held: dict[str, int]) -> ScratchDir:
    """Make a folder of files and of places to mount on, which whoever the commands run as can read."""
    folder = ScratchDir("/tmp")
    usual = os.umask(0o022)
    os.chmod(folder.path, 0o755)
    for name, fd in held.items():
        path = os.path.join(folder.path, name)
        if text := os.pread(fd, 1 << 21, 0):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(text)
        else:
            os.makedirs(path, exist_ok=True)
        os.close(fd)
    os.umask(usual)
    return folder


def effective_limits(wanted: dict[str, int]) -> list[tuple[int, int]]:
    """Kinds of limits and how much: what is wanted, or the little that this process has itself."""
    found = [(resource.RLIMIT_CORE, 0)]
    for name, kind in _LIMITS.items():
        most = resource.getrlimit(kind)[1]
        found.append(
            (kind, wanted[name] if most == resource.RLIM_INFINITY else min(wanted[name], most))
        )
    return found


def child_pids() -> list[int]:
    """Numbers of this process's children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without checkpoint support does not list them
        return [
            int(pid)
            for pid in os.listdir("/proc")
            if pid.isdecimal() and _parent(pid) == os.getpid()
        ]


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@contextlib.contextmanager
def _hated() -> Generator[None]:
    """Who is born now is killed first when memory runs out."""
    with open("/proc/self/oom_score_adj", "r+") as score:
        before = score.read()
        score.write("1000")
        score.flush()
        try:
            yield
        finally:
            score.seek(0)
            score.write(before)


def _high(fd: int) -> int:
    """The same, where no command's descriptor is."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OWN)
    os.close(fd)
    return moved


def describe_error(error: BaseException) -> str:
    """What a failure is called where the harness hears it."""
    return f"{type(error).__name__}: {error}"


def send_result(wire: socket.socket, said: dict[str, Any]) -> None:
    """Tell the harness how a command went; the last word on its wire."""
    with wire:
        try:
            wire.sendall(json.dumps(said).encode())
        except OSError:
            pass  # nobody is there to hear it


def kill_process(pid: int) -> None:
    """End that process, if there is one; 0 is none."""
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
