"""Process tree of a command without a sandbox: finds and kills all descendants."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable

from ..._platform.processes import (
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
_MAX_SEARCHES = 20
"""Searches for processes that others started before they were stopped."""


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
        self._is_search_complete = True
        self._killed: set[int] = set()

    @property
    def left(self) -> int:
        """Number of processes besides the command's own that were alive and had to be killed."""
        return len(self._killed - {self._process.pid})

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
        """Kill all processes once, and return whether any was alive or may be."""
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
        """Stop all processes, and return the ids of those that are alive.

        A stopped process starts no other. One that was killed first could have started another a
        moment before, whose parent is then unknown.
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
            self._is_search_complete = False  # it starts a program, and shows its mark after that
            return False
        return self._mark in environ


def select_members(
    processes: list[Process], known: set[int], session: int, has_mark: Callable[[int], bool]
) -> list[Process]:
    """Return the processes that are known, in the session or marked, and all that they started.

    Neither start times nor ids show which process started the other: a hundredth of a second is one
    tick, and ids begin again after the last one.

    Arguments:
        known: ids of processes that were found before.
        has_mark: returns whether the environment of a process has the mark.
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
