"""Commands as a person would run them, without walls (tier "off"): but with an end, and nothing of them left after it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping

from .._core.ports import CommandResult
from .._platform.scratch_dirs import ScratchDir, remove_orphans_once
from ..errors import WorkspaceError
from .environment import make_quiet
from .linux.daemon.protocol import MARK_VARIABLE
from .output_pipe import OutputPipe

_GRACE = 2.0


class Unsandboxed:
    """Runs bash commands in a folder, with the rights of this process.

    A descendant is known by its parents, its session, or a mark in its environment; one that gets rid of all three
    before the command ends survives it. Where there is no /proc only the command's process group is ended.

    Arguments:
        cwd: the folder commands start in.
        env: the environment of commands, as it is; None is this process's, without secrets, colours and pagers.
        wrap: command -> what is started for it; None is a shell.
    """

    def __init__(
        self,
        workspace: str,
        env: Mapping[str, str] | None = None,
        make_argv: Callable[[str], list[str]] | None = None,
    ) -> None:
        self._cwd = workspace
        self._env = dict(env) if env is not None else make_quiet(os.environ)
        self._shell = shutil.which("bash") or shutil.which("sh") or "/bin/sh"
        self._wrap = make_argv or self._plainly
        self._sign: ScratchDir | None = None

    @property
    def tier(self) -> str:
        """ "off": nothing is guarded."""
        return "off"

    def close(self) -> None:
        """Let go of the folder by which commands are known."""
        if self._sign:
            self._sign.remove()
            self._sign = None

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run the command, feeding stdout and stderr, in the order they come, to `sink`.

        Ends when the command's own process ends, also when a descendant still holds its output, or after `timeout` seconds.
        All descendants are gone then, and when the call is cancelled: within 2 seconds.
        Raises WorkspaceError when the command cannot be started, and what `sink` raises: the command is ended then.
        """
        mark = f"{self._signed()}/{uuid.uuid4().hex}"
        reading, writing = os.pipe()
        try:
            process = self._start(command, mark, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        over = asyncio.Event()
        pipe = OutputPipe(reading, sink, over)
        timed_out = False
        try:
            async with asyncio.timeout(timeout):
                await _ended(process, over)
        except TimeoutError:
            timed_out = True
        finally:
            try:
                pipe.drain()
                await _ProcessTree(process, mark).end()
            finally:
                pipe.close()
        if pipe.sink_error:
            raise pipe.sink_error
        return CommandResult(
            process.returncode if process.returncode is not None else -signal.SIGKILL, timed_out
        )

    def _signed(self) -> str:
        """Path of an empty folder by which commands are known once this process was killed, "" where none can be made."""
        if self._sign is None:
            remove_orphans_once()
            try:
                self._sign = ScratchDir()
            except OSError:
                return ""
            weakref.finalize(self, self._sign.remove)
        return self._sign.path

    def _plainly(self, command: str) -> list[str]:
        return [self._shell, "-c", command]

    def _start(self, command: str, mark: str, output: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._wrap(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._cwd,
                env={**self._env, MARK_VARIABLE: mark},
                start_new_session=True,
            )
        except OSError as error:
            raise WorkspaceError(
                f"the command cannot be started: {error.strerror}", where=self._cwd
            ) from error


async def _ended(process: subprocess.Popen[bytes], over: asyncio.Event) -> None:
    """Wait for the process, or for `over`, without reaping it: until then its number, and its group's, cannot become another's."""
    if not hasattr(os, "pidfd_open"):
        while not over.is_set() and not _is_over(process.pid):  # noqa: ASYNC110  without pidfd nothing tells us
            await asyncio.sleep(0.02)
        return
    loop = asyncio.get_running_loop()
    watch = os.pidfd_open(process.pid)
    loop.add_reader(watch, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(watch)
        os.close(watch)


def _is_over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _ProcessTree:
    """A command's process and all its descendants."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self._process, self._mark = process, f"{MARK_VARIABLE}={mark}".encode()
        first = _status(process.pid)
        self._born = first.born if first else 0
        self._known = {process.pid}

    async def end(self) -> None:
        """Kill them all, again and again until none is left, for 2 seconds at most; leave no zombie of ours behind."""
        deadline = time.monotonic() + _GRACE
        try:
            while self._kill() and time.monotonic() < deadline:  # noqa: ASYNC110  nothing tells of others' children
                await asyncio.sleep(0.005)
        finally:
            for pid in self._known - {self._process.pid}:
                _reap(pid)
            self._process.poll()

    def _kill(self) -> bool:
        """One round; whether there was anyone alive."""
        _signal(os.killpg, self._process.pid)
        alive = False
        for found in self._members():
            self._known.add(found.pid)
            if found.state not in "ZX":
                alive = True
                _signal(os.kill, found.pid)
        return alive

    def _members(self) -> list[_ProcessStatus]:
        """Who is younger than the command and belongs to it: by parent, by session, or by the mark."""
        young = sorted(
            (found for found in _processes() if found.born >= self._born),
            key=lambda found: (found.born, found.pid),
        )
        family = set(self._known)
        members: list[_ProcessStatus] = []
        for found in young:
            if (
                found.pid in family
                or found.parent in family
                or found.session == self._process.pid
                or self._marked(found.pid)
            ):
                family.add(found.pid)
                members.append(found)
        return members

    def _marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self._mark in file.read()
        except OSError:
            return False


class _ProcessStatus:
    """What /proc says of a process: state letter, parent, session, and when it was born, in ticks since boot."""

    __slots__ = ("born", "parent", "pid", "session", "state")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid, self.state = pid, fields[0].decode()
        self.parent, self.session, self.born = int(fields[1]), int(fields[3]), int(fields[19])


def _processes() -> Iterator[_ProcessStatus]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdecimal() and (found := _status(int(name))):
            yield found


def _status(pid: int) -> _ProcessStatus | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read(1024)
    except OSError:
        return None
    return _ProcessStatus(pid, line[line.rindex(b")") + 2 :].split())


def _signal(send: Callable[[int, int], None], number: int) -> None:
    try:
        send(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _reap(pid: int) -> None:
    """Where this process is the one that orphans fall to (pid 1 of a container), their remains are its to take."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
