"""Cleans up after killed processes: their scratch directories, and commands that outlived them."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import cache

from .processes import list_pids, read_environ
from .scratch_dirs import SCRATCH_NAME, choose_default_base, open_abandoned, remove_dir

# Folders open at the same time.
_BATCH_SIZE = 64
# Searches for a folder's processes: a single one may miss a process that is just starting.
_MAX_ROUNDS = 8
# Seconds between two searches.
_ROUND_DELAY = 0.02
# Seconds, after which processes being started during the first pass can be seen.
_SECOND_PASS_DELAY = 0.2

THREAD_NAME = "orphan clean-up"


@cache
def remove_orphans_once() -> None:
    remove_orphans_in_background()


def remove_orphans_in_background() -> None:
    """Remove orphans in the usual temporary folders, in another thread."""
    threading.Thread(target=_remove_twice, name=THREAD_NAME, daemon=True).start()


def _remove_twice() -> None:
    for delay in (0.0, _SECOND_PASS_DELAY):
        time.sleep(delay)
        for base in {choose_default_base(), "/tmp"}:
            remove_orphans(base)


def remove_orphans(base: str) -> None:
    """Remove this user's abandoned scratch directories in a folder, and kill their processes.

    A process belongs to a directory named in its environment. Whatever cannot be removed stays, and
    so does a directory while it is uncertain whether a process belongs to it.
    """
    paths = _list_scratch_paths(base)
    for start in range(0, len(paths), _BATCH_SIZE):
        _remove_abandoned(paths[start : start + _BATCH_SIZE])


def _remove_abandoned(paths: list[str]) -> None:
    abandoned: dict[str, int] = {}
    try:
        for path in paths:
            descriptor = open_abandoned(path)
            if descriptor is not None:
                abandoned[path] = descriptor
        if abandoned and _kill_processes_of(list(abandoned)):
            for path, descriptor in abandoned.items():
                remove_dir(path, descriptor)
    finally:
        for descriptor in abandoned.values():
            os.close(descriptor)


def _list_scratch_paths(base: str) -> list[str]:
    try:
        return [f"{base}/{name}" for name in os.listdir(base) if SCRATCH_NAME.fullmatch(name)]
    except OSError:
        return []


def _kill_processes_of(folders: list[str]) -> bool:
    """Kill the processes with one of the folders in their environment, and their new children.

    Folders named in this process's own environment are skipped, since their processes are related
    to it. Return True if certainly no such process is left.
    """
    own_values = tuple(os.environ.values())
    marks = [
        f"={folder}/".encode()
        for folder in folders
        if not any(value.startswith(f"{folder}/") for value in own_values)
    ]
    quiet_rounds = 0
    starting: list[int] = []
    for _ in range(_MAX_ROUNDS):
        # After two quiet rounds, only a process that was starting then can belong to a folder:
        # a later one was started by a process whose environment has no mark.
        pids = starting if quiet_rounds == 2 else list_pids()
        states = {pid: _kill_marked(pid, marks) for pid in pids if pid != os.getpid()}
        starting = [pid for pid, is_killed in states.items() if is_killed is None]
        quiet_rounds = 0 if any(states.values()) else min(2, quiet_rounds + 1)
        if quiet_rounds == 2 and not starting:
            return True
        time.sleep(_ROUND_DELAY)
    return False


def _kill_marked(pid: int, marks: list[bytes]) -> bool | None:
    """Kill a process if its environment contains a mark, and return whether it was killed.

    Returns None while the process starts a program, as its environment is not yet known.
    """
    try:
        # The descriptor names this very process, even if its id is reused before the kill.
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        environ = read_environ(pid)
        if environ is None:
            return None
        if not any(mark in environ for mark in marks):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(process)
