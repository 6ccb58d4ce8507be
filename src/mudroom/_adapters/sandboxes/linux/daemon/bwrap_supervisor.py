"""Tier full in the daemon: an event loop starts and ends all commands. Standard library only.

Processes are started only with `posix_spawn`: forking this program twice per command took longer
than most commands run. Anything a fork could do before the command starts is done by bwrap, or by
this loop while bwrap waits at its gate.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import resource
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from ....._platform.processes import kill_process, list_children, reap_process
from ....._platform.scratch_dirs import ScratchDir
from . import idmapped_mount
from .command_start import DEFAULT_SIGNALS, compute_limits, kill_children_first
from .protected_files import ProtectedFiles
from .protocol import (
    ETC_PLACEHOLDER,
    FILTER_FD,
    GATE_FD,
    LEFT_FD,
    MARK_VARIABLE,
    STATUS_FD,
    DaemonSetup,
    Outcome,
    describe_error,
    receive_message,
    send_outcome,
)

_PR_SET_CHILD_SUBREAPER = 36
_FIRST_OWN_DESCRIPTOR = 100  # so that the daemon's never collide with a command's
_CHILD_PID = re.compile(rb'"child-pid": (\d+)')
_EXIT_CODE = re.compile(rb'"exit-code": (\d+)')
_MAX_LEFT_BYTES = 16  # a command can also write to the pipe of the count
_LIBC = ctypes.CDLL(None, use_errno=True)


class RunningCommand:
    """A command and its descriptors.

    Arguments:
        result_socket: closed by the client when it gives up.
        status_fd: the reading end of bwrap's status. gate_fd: the writing end of its gate.
        left_fd: the reading end of the count of remaining processes.
    """

    def __init__(
        self,
        result_socket: socket.socket,
        *,
        status_fd: int,
        gate_fd: int,
        left_fd: int,
        bwrap_pid: int,
    ) -> None:
        self.result_socket = result_socket
        self.status_fd = status_fd
        self.gate_fd = gate_fd
        self.left_fd = left_fd
        self.bwrap_pid = bwrap_pid
        # The sandbox's first process, with which all others end. 0 until bwrap reports it.
        self.init_pid = 0
        self.status = b""
        self.is_stopped = False
        self.error = ""

    def make_outcome(self) -> Outcome:
        if self.is_stopped:
            return Outcome(-signal.SIGKILL)
        if code := _EXIT_CODE.search(self.status):
            return Outcome(int(code[1]), left=self._read_left())
        return Outcome(-signal.SIGKILL, self.error or "bwrap ended before the command did")

    def _read_left(self) -> int:
        try:
            text = os.read(self.left_fd, _MAX_LEFT_BYTES)
        except BlockingIOError:
            return 0  # the counting process was killed
        return int(text) if text.strip().isdigit() else 0


class CommandSupervisor:
    """The event loop for all commands of a sandbox.

    `descriptors` are for the seccomp filter and the contents of /etc.
    """

    def __init__(self, setup: DaemonSetup, descriptors: list[int]) -> None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        filter_fd, *etc_fds = descriptors
        self._protected = ProtectedFiles(setup.workspace, setup.quarantine, restore_existing=False)
        self._mounts = (
            idmapped_mount.IdmappedMounts([setup.workspace, *setup.extra_dirs])
            if setup.other_user
            else None
        )
        self._etc = _make_etc(dict(zip(setup.etc_paths, etc_fds, strict=True)))
        filter_path = f"/proc/self/fd/{_move_up(filter_fd)}"
        self._filter_action = (os.POSIX_SPAWN_OPEN, FILTER_FD, filter_path, os.O_RDONLY, 0)
        self._limits = compute_limits(setup.limits)
        self._running: set[RunningCommand] = set()
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

    def serve(self, control: socket.socket) -> None:
        """Run until the client and its last command have ended."""
        self._watch(control.fileno(), lambda: self._receive_request(control))
        while self._handlers:
            for descriptor, _ in self._poll.poll():
                if handler := self._handlers.get(descriptor):
                    handler()
        self._etc.remove()

    def _receive_request(self, control: socket.socket) -> None:
        """Start the next command.

        Protected files are recorded whenever no command is running, as the user may change them
        between commands.
        """
        message, pair = receive_message(control)
        if message is None:
            self._unwatch(control.fileno())
            control.close()
            return
        output = _move_up(pair[0])
        result_socket = socket.socket(fileno=_move_up(pair[1]))
        try:
            if not self._running:
                self._protected.take_snapshot()
            self._start_command(message["argv"], output, result_socket)
        except OSError as error:
            send_outcome(result_socket, Outcome(-signal.SIGKILL, describe_error(error)))
        finally:
            os.close(output)

    def _start_command(self, argv: list[str], output: int, result_socket: socket.socket) -> None:
        status_read, status_write = map(_move_up, os.pipe())
        left_read, left_write = map(_move_up, os.pipe())
        for descriptor in (status_read, left_read):
            os.set_blocking(descriptor, False)
        gate_read, gate_write = map(_move_up, os.pipe())
        # bwrap's gate also holds its own writing end: if this process dies, bwrap waits and never
        # starts a command without limits. The clean-up of orphans then kills bwrap.
        gate = _move_up(os.open(f"/proc/self/fd/{gate_read}", os.O_RDWR))
        copies = {1: output, 2: output, STATUS_FD: status_write, GATE_FD: gate, LEFT_FD: left_write}
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, source, target) for target, source in copies.items()),
            self._filter_action,
        ]
        try:
            bwrap_pid = self._spawn_bwrap(argv, actions)
        except OSError:
            for descriptor in (status_read, left_read, gate_write):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (status_write, left_write, gate_read, gate):
                os.close(descriptor)
        command = RunningCommand(
            result_socket,
            status_fd=status_read,
            gate_fd=gate_write,
            left_fd=left_read,
            bwrap_pid=bwrap_pid,
        )
        self._running.add(command)
        self._watch(status_read, lambda: self._read_status(command))
        self._watch(result_socket.fileno(), lambda: self._stop_command(command))
        self._call_when_ended(bwrap_pid, lambda: self._handle_bwrap_end(command))

    def _spawn_bwrap(self, argv: list[str], actions: list[Any]) -> int:
        """Start bwrap.

        It dies with this process, but not in its first milliseconds. So its environment names our
        scratch directory, which lets the clean-up of orphans find it.
        """
        argv = self._mounts.rewrite_binds(argv) if self._mounts else argv
        argv[argv.index(ETC_PLACEHOLDER)] = self._etc.path
        user = idmapped_mount.SANDBOX_UID if self._mounts else os.geteuid()
        with kill_children_first(), idmapped_mount.as_user(user):
            return os.posix_spawn(
                argv[0],
                argv,
                {MARK_VARIABLE: f"{self._etc.path}/"},
                file_actions=actions,
                setsigdef=DEFAULT_SIGNALS,
                setsigmask=(),
            )

    def _read_status(self, command: RunningCommand) -> int:
        """Read bwrap's status and open the gate for its child; return the number of bytes."""
        try:
            chunk = os.read(command.status_fd, 4096)
        except BlockingIOError:
            return 0
        if not chunk:
            self._unwatch(command.status_fd)
        command.status += chunk
        if not command.init_pid and (pid := _CHILD_PID.search(command.status)):
            command.init_pid = int(pid[1])
            self._open_gate(command)
        return len(chunk)

    def _open_gate(self, command: RunningCommand) -> None:
        """Limit the sandbox's first process, then let it start the command."""
        try:
            with idmapped_mount.as_user(os.stat(f"/proc/{command.init_pid}").st_uid):
                for kind, limit in self._limits:
                    resource.prlimit(command.init_pid, kind, (limit, limit))
            os.write(command.gate_fd, b"x")
        except (FileNotFoundError, ProcessLookupError):
            pass  # bwrap prints the reason itself
        except OSError as error:
            command.error = describe_error(error)
            kill_process(command.bwrap_pid)

    def _handle_bwrap_end(self, command: RunningCommand) -> None:
        """Kill the rest of the sandbox, and wait for it to be gone.

        bwrap may have been killed before it reported the sandbox's first process. That process
        is then a child of ours that belongs to no command.
        """
        while self._read_status(command):
            pass
        self._unwatch(command.status_fd)
        os.close(command.status_fd)
        os.close(command.gate_fd)
        kill_process(command.init_pid)
        if not command.init_pid:
            known = {pid for one in self._running for pid in (one.bwrap_pid, one.init_pid)}
            for pid in set(list_children()) - known:
                kill_process(pid)
                os.waitpid(pid, 0)
        self._call_when_ended(command.init_pid, lambda: self._finish_command(command))

    def _stop_command(self, command: RunningCommand) -> None:
        """Kill a command whose client gave up or ended."""
        self._unwatch(command.result_socket.fileno())
        command.is_stopped = True
        kill_process(command.init_pid)
        kill_process(command.bwrap_pid)

    def _call_when_ended(self, pid: int, callback: Callable[[], None]) -> None:
        """Call back when the process ends; reap it if it is our child. Process 0 has ended."""
        try:
            pid_fd = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            pid_fd = -1
        if pid_fd < 0:
            callback()
            return

        def handle_end() -> None:
            self._unwatch(pid_fd)
            os.close(pid_fd)
            reap_process(pid)
            callback()

        self._watch(pid_fd, handle_end)

    def _finish_command(self, command: RunningCommand) -> None:
        self._unwatch(command.result_socket.fileno())
        self._running.discard(command)
        outcome = command.make_outcome()
        os.close(command.left_fd)
        try:
            outcome = outcome._replace(restored=self._protected.restore())
        except Exception as error:  # noqa: BLE001  other commands must continue
            outcome = outcome._replace(error=outcome.error or describe_error(error))
        send_outcome(command.result_socket, outcome)

    def _watch(self, descriptor: int, handler: Callable[[], object]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None):
            self._poll.unregister(descriptor)


def _make_etc(contents: dict[str, int]) -> ScratchDir:
    """Make the folder that commands see as /etc, readable by every user.

    `contents`: path -> descriptor of the content. Empty content makes a folder to mount another on.
    """
    directory = ScratchDir("/tmp")
    umask = os.umask(0o022)
    os.chmod(directory.path, 0o755)
    for name, descriptor in contents.items():
        path = os.path.join(directory.path, name)
        if text := os.pread(descriptor, 1 << 21, 0):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(text)
        else:
            os.makedirs(path, exist_ok=True)
        os.close(descriptor)
    os.umask(umask)
    return directory


def _move_up(descriptor: int) -> int:
    """Move a descriptor to a number that no command uses."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN_DESCRIPTOR)
    os.close(descriptor)
    return moved
