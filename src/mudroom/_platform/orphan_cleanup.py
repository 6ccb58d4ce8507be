"""Clean-up after killed processes: their scratch directories, and commands that outlived them."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import cache

from .processes import list_pids, read_environ
from .scratch_dirs import SCRATCH_NAME, choose_default_base, open_abandoned, remove_dir

_BATCH_SIZE = 64
"""Folders that are open at the same time."""
_MAX_ROUNDS = 8
"""Maximum number of searches for processes of a folder: one may miss a process that just starts."""
_ROUND_DELAY = 0.02
"""Seconds between two searches."""
_SECOND_PASS_DELAY = 0.2

THREAD_NAME = "orphan clean-up"


@cache
def remove_orphans_once() -> None:
    """Call `remove_orphans_in_background` on the first call only."""
    remove_orphans_in_background()


def remove_orphans_in_background() -> None:
    """Remove orphans in the usual temporary folders, in another thread.

    A second pass follows, for processes that were just being started during the first one.
    """
    threading.Thread(target=_remove_twice, name=THREAD_NAME, daemon=True).start()


def _remove_twice() -> None:
    for delay in (0.0, _SECOND_PASS_DELAY):
        time.sleep(delay)
        for base in {choose_default_base(), "/tmp"}:
            remove_orphans(base)


def remove_orphans(base: str) -> None:
    """Remove this user's abandoned scratch directories in a folder, and kill their processes.

    A process belongs to a directory if its environment names it. What cannot be removed stays, and
    so does a directory while it is unknown whether a process belongs to it.
    """
    paths = _list_scratch_paths(base)
    for start in range(0, len(paths), _BATCH_SIZE):
        _remove_abandoned(paths[start : start + _BATCH_SIZE])


def _remove_abandoned(paths: list[str]) -> None:
    """Remove those of these folders that are abandoned, and kill their processes."""
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
    """Kill the processes started with one of the folders in a variable, and their new children.

    Folders named in this process's own environment are left out: their processes are related to it.
    Returns True if it is certain that no such process is left.
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
    """Kill a process if its environment holds a mark, and return whether it was killed.

    Returns None while the process starts a program, as its environment is not known yet.
    The descriptor makes sure that no other process that gets the same id is killed.
    """
    try:
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
