"""Tier off: commands run with the user's rights. They have a time limit and leave no processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
import uuid
import weakref
from collections.abc import Callable, Mapping

from ..._core.ports import CommandResult
from ..._platform.orphan_cleanup import remove_orphans_once
from ..._platform.processes import (
    Process,
    kill_process,
    list_processes,
    read_environ,
    read_process,
    reap_process,
)
from ..._platform.scratch_dirs import ScratchDir
from ..._platform.time_limits import time_limit
from ...errors import WorkspaceError
from .environ import make_quiet
from .linux.daemon.protocol import MARK_VARIABLE
from .output_pipe import OutputPipe

KILL_TIMEOUT = 2.0  # seconds
_KILL_POLL_INTERVAL = 0.005
_MAX_SEARCHES = 20  # for processes that others started before being stopped


class ProcessTree:
    """A command's process and all its descendants.

    A descendant is recognised by its parents, its session, or a mark in its environment. One that
    sheds all three before the command ends survives it. The process leads its own session.
    """

    def __init__(self, process: subprocess.Popen[bytes], mark: bytes) -> None:
        self._process = process
        self._mark = mark
        leader = read_process(process.pid)
        self._started = leader.started if leader else 0
        self._known = {process.pid}
        self._is_search_complete = True
        self._killed: set[int] = set()

    @property
    def left(self) -> int:
        """Number of processes besides the command's own that were alive and had to be killed."""
        return len(self._killed - {self._process.pid})

    async def kill(self) -> None:
        """Kill processes until none is left, for at most KILL_TIMEOUT seconds.

        Reaps those that become children of this process, as orphans do if it is process 1. A cancel
        is raised only afterwards.
        """
        deadline = time.monotonic() + KILL_TIMEOUT
        cancel: asyncio.CancelledError | None = None
        # No event tells when other processes' children end.
        while self._kill_once() and time.monotonic() < deadline:
            try:
                await asyncio.sleep(_KILL_POLL_INTERVAL)
            except asyncio.CancelledError as error:
                cancel = error
        for pid in self._known - {self._process.pid}:
            reap_process(pid)
        self._process.poll()
        if cancel:
            raise cancel

    def _kill_once(self) -> bool:
        """Kill all processes once; return whether any was alive or may be."""
        alive = self._stop_members()
        self._killed |= alive
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        for pid in alive:
            kill_process(pid)
        return bool(alive) or not self._is_search_complete

    def _stop_members(self) -> set[int]:
        """Stop all processes; return the ids of living ones.

        A stopped process starts no others. A process killed at once could have just started
        another, whose parent is then unknown.
        """
        alive: set[int] = set()
        stopped: set[int] = set()
        for _ in range(_MAX_SEARCHES):
            members = self._find_members()
            self._known.update(process.pid for process in members)
            alive = {process.pid for process in members if not process.is_dead}
            if alive <= stopped:
                break
            for pid in alive - stopped:
                try:
                    os.kill(pid, signal.SIGSTOP)
                except (ProcessLookupError, PermissionError):
                    pass
            stopped |= alive
        return alive

    def _find_members(self) -> list[Process]:
        self._is_search_complete = True
        return select_members(
            [process for process in list_processes() if process.started >= self._started],
            self._known,
            self._process.pid,
            self._has_mark,
        )

    def _has_mark(self, pid: int) -> bool:
        environ = read_environ(pid)
        if environ is None:
            self._is_search_complete = False  # starting a program; its mark shows only afterwards
            return False
        return self._mark in environ


def select_members(
    processes: list[Process], known: set[int], session: int, has_mark: Callable[[int], bool]
) -> list[Process]:
    """Select processes that are known, in the session or marked, and all that they started.

    Neither start times nor ids show which of two processes started the other: a tick is a hundredth
    of a second, and ids wrap around.
    """
    members: list[Process] = []
    found = [
        process
        for process in processes
        if process.pid in known or process.session == session or has_mark(process.pid)
    ]
    pids = set(known)
    while found:
        members += found
        pids.update(process.pid for process in found)
        found = [
            process for process in processes if process.parent in pids and process.pid not in pids
        ]
    return members


_POLL_INTERVAL = 0.02


class Unsandboxed:
    """Sandbox port, tier off or ask: bash commands in a folder, with this process's rights.

    Without procfs, only a command's process group is killed.

    Arguments:
        env: the environment of commands; None means this process's, without secrets, colours and
            pagers.
        tier: "ask" if permissions confirm each command before it runs.
        make_argv: makes the arguments that start a command; None means a shell.
    """

    def __init__(
        self,
        workspace: str,
        env: Mapping[str, str] | None = None,
        make_argv: Callable[[str], list[str]] | None = None,
        *,
        tier: str = "off",
    ) -> None:
        self.tier = tier
        self._workspace = workspace
        self._env = dict(env) if env is not None else make_quiet(os.environ)
        self._shell = shutil.which("bash") or shutil.which("sh") or "/bin/sh"
        self._make_argv = make_argv or self._make_shell_argv
        self._mark_dir: ScratchDir | None = None

    def close(self) -> None:
        """Remove the folder whose path marks commands' processes."""
        if self._mark_dir:
            self._mark_dir.remove()
            self._mark_dir = None

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run the command; pass its stdout and stderr to `sink` in order of arrival.

        Ends when the command's own process ends, even if a descendant still holds its output, or
        after `timeout` seconds. Then, and when the call is cancelled, all descendants are gone
        within 2 seconds. An exception from `sink` ends the command and is raised.
        """
        mark = f"{self._mark_path()}/{uuid.uuid4().hex}"
        output_read, output_write = os.pipe()
        try:
            process = self._start(command, mark, output_write)
        except BaseException:
            os.close(output_read)
            raise
        finally:
            os.close(output_write)
        finished = asyncio.Event()
        pipe = OutputPipe(output_read, sink, finished)
        tree = ProcessTree(process, f"{MARK_VARIABLE}={mark}".encode())
        timed_out = False
        try:
            async with time_limit(timeout):
                await _wait_for_end(process, finished)
        except TimeoutError:
            timed_out = True
        finally:
            try:
                pipe.drain()
                await tree.kill()
            finally:
                pipe.close()
        if pipe.sink_error:
            raise pipe.sink_error
        code = process.returncode
        left = 0 if timed_out else tree.left
        return CommandResult(code if code is not None else -signal.SIGKILL, timed_out, left)

    def _mark_path(self) -> str:
        """Return the path that marks commands' processes, in their environment.

        If this process is killed, a later clean-up finds them by it. "" if the folder cannot be
        made.
        """
        if self._mark_dir is None:
            remove_orphans_once()
            try:
                self._mark_dir = ScratchDir()
            except OSError:
                return ""
            weakref.finalize(self, self._mark_dir.remove)
        return self._mark_dir.path

    def _make_shell_argv(self, command: str) -> list[str]:
        return [self._shell, "-c", command]

    def _start(self, command: str, mark: str, output: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._make_argv(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._workspace,
                env={**self._env, MARK_VARIABLE: mark},
                start_new_session=True,
            )
        except OSError as error:
            raise WorkspaceError(
                f"the command cannot be started: {error.strerror}", where=self._workspace
            ) from error


async def _wait_for_end(process: subprocess.Popen[bytes], finished: asyncio.Event) -> None:
    """Wait for the process to end or for `finished`, without reaping the process.

    Until it is reaped, its id and its group's cannot go to another process.
    """
    if not hasattr(os, "pidfd_open"):
        # Without a pidfd, no event tells of the end.
        while not finished.is_set() and not _has_ended(process.pid):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_INTERVAL)
        return
    loop = asyncio.get_running_loop()
    pid_fd = os.pidfd_open(process.pid)
    loop.add_reader(pid_fd, finished.set)
    try:
        await finished.wait()
    finally:
        loop.remove_reader(pid_fd)
        os.close(pid_fd)


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
