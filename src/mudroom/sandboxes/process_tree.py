"""Process tree of a command without a sandbox: finds and kills all descendants."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time

from .._platform.processes import (
    Process,
    kill_process,
    list_processes,
    read_environ,
    read_process,
    reap_process,
)

KILL_TIMEOUT = 2.0
"""Seconds."""
_POLL_INTERVAL = 0.005


class ProcessTree:
    """Process of a command and all its descendants.

    A descendant is known by its parents, its session, or a mark in its environment. One that gets
    rid of all three before the command ends survives it.

    Arguments:
        process: leader of a session of its own.
        mark: a text that the environment of the command's processes contains.
    """

    def __init__(self, process: subprocess.Popen[bytes], mark: bytes) -> None:
        self._process = process
        self._mark = mark
        leader = read_process(process.pid)
        self._started = leader.started if leader else 0
        self._known = {process.pid}

    async def kill(self) -> None:
        """Kill all processes until none is left, for at most KILL_TIMEOUT seconds.

        Reaps those that become children of this process, as orphans do if it is process 1.
        A cancel is raised when that is done.
        """
        deadline = time.monotonic() + KILL_TIMEOUT
        cancel: asyncio.CancelledError | None = None
        # No event tells when the children of others end.
        while self._kill_once() and time.monotonic() < deadline:
            try:
                await asyncio.sleep(_POLL_INTERVAL)
            except asyncio.CancelledError as error:
                cancel = error
        for pid in self._known - {self._process.pid}:
            reap_process(pid)
        self._process.poll()
        if cancel:
            raise cancel

    def _kill_once(self) -> bool:
        """Kill all processes once, and return whether any was alive."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        members = self._find_members()
        self._known.update(process.pid for process in members)
        alive = [process.pid for process in members if not process.is_dead]
        for pid in alive:
            kill_process(pid)
        return bool(alive)

    def _find_members(self) -> list[Process]:
        younger = sorted(
            (process for process in list_processes() if process.started >= self._started),
            key=lambda process: (process.started, process.pid),
        )
        pids = set(self._known)
        members: list[Process] = []
        for process in younger:
            if (
                process.pid in pids
                or process.parent in pids
                or process.session == self._process.pid
                or self._mark in read_environ(process.pid)
            ):
                pids.add(process.pid)
                members.append(process)
        return members
