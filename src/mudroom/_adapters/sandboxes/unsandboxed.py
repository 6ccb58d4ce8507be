"""Tier off: commands run with the user's rights. They have a time limit and leave no processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import uuid
import weakref
from collections.abc import Callable, Mapping

from ..._core.ports import CommandResult
from ..._platform.orphan_cleanup import remove_orphans_once
from ..._platform.scratch_dirs import ScratchDir
from ..._platform.time_limits import time_limit
from ...errors import WorkspaceError
from .environ import make_quiet
from .linux.daemon.protocol import MARK_VARIABLE
from .output_pipe import OutputPipe
from .process_tree import ProcessTree

_POLL_INTERVAL = 0.02


class Unsandboxed:
    """Sandbox port, tier off or ask: bash commands in a folder, with the rights of this process.

    Descendants of a command are found as ProcessTree says. Without procfs only the process group of
    the command is killed.

    Arguments:
        env: the environment of commands; None means this process's, without secrets, colours and
            pagers.
        tier: "ask" where the permissions confirm each command before it runs.
        make_argv: returns the arguments that start a command; None means a shell.
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
        """Remove the folder whose path marks the processes of commands."""
        if self._mark_dir:
            self._mark_dir.remove()
            self._mark_dir = None

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run the command; pass its stdout and stderr to `sink` in the order they arrive.

        Ends when the command's own process ends, even if a descendant still holds its output, or
        after `timeout` seconds. Then, and when the call is cancelled, all descendants are gone
        within 2 seconds.
        Raises WorkspaceError if the command cannot be started. An exception of `sink` ends the
        command and is raised.
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
        """Return the path that marks the processes of commands in their environment.

        If this process is killed, a later clean-up finds them by it. "" if no folder can be made.
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
    """Wait for the process to end, or for `finished`, without reaping the process.

    Until it is reaped, its id and that of its group cannot be given to another process.
    """
    if not hasattr(os, "pidfd_open"):
        # Without a pidfd no event tells the end.
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
