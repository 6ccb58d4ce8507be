"""A program that merges kept work, and that is killed or runs out of room meanwhile.

    python land.py

Reads lines of JSON: `home`, `project` and `work` (the id of the kept work), and the points at
which to kill: `line` is the number of the line of the landing's own code, 0 for never;
`bytes` is the largest file that may be written, -1 for any; `user` is the number of the user who
merges, -1 for the present one. For each line of input a new process
merges the work, as `mudroom workspaces apply` does. The answer is a line of JSON: `lines` that the
process came to, the `error` that it ended with, and whether it was `killed`. If the order is
`watched`, also `states`, the lines before which the disk had just changed, and `sizes` of all files
that were there at some line.

A process killed at a line leaves what it wrote before. So to kill it once in each state of the disk
is to kill it at each line.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import sys
from types import FrameType
from typing import Any

from mudroom import MudroomError
from mudroom._adapters.workspaces import _atomic_write
from mudroom._adapters.workspaces.isolated import landing
from mudroom._adapters.workspaces.isolated.kept_work import find_kept
from mudroom._cli.actions.workspaces import merge_kept

FOLDER = os.path.dirname(landing.__file__)

Disk = dict[str, tuple[int, int, int, int, bytes]]
"""Path -> inode, mode, size, time of change in nanoseconds, and content."""


class Lines:
    """Counter of the lines of the landing that run; it kills the process at one of them.

    Arguments:
        watched: folders whose states are found.

    Attributes:
        states: the lines before which the disk had changed since the line before.
        sizes: of all files that were there at some line.
    """

    def __init__(self, killed_at: int, watched: list[str]) -> None:
        self.passed = 0
        self.states: list[int] = []
        self.sizes: set[int] = set()
        self._killed_at = killed_at
        self._watched = watched
        self._disk: Disk = {}

    def enter(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        is_landing = name.startswith(FOLDER) or name == _atomic_write.__file__
        return self._count if is_landing else None

    def _count(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self.passed += 1
            if self.passed == self._killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._watched:
                self._look()
        return self._count

    def _look(self) -> None:
        disk: Disk = {}
        for top in self._watched:
            read_disk(top, disk)
        if disk != self._disk:
            self.states.append(self.passed)
            self.sizes |= {state[2] for state in disk.values() if stat.S_ISREG(state[1])}
        self._disk = disk


def read_disk(folder: str, disk: Disk) -> None:
    """Add what is below a folder, without the objects of git, which are never changed."""
    for entry in os.scandir(folder):
        found = entry.stat(follow_symlinks=False)
        content = b""
        if entry.is_dir(follow_symlinks=False):
            if not entry.path.endswith(".git/objects"):
                read_disk(entry.path, disk)
        elif entry.is_file(follow_symlinks=False):
            with open(entry.path, "rb") as file:
                content = file.read()
        disk[entry.path] = (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, content)


def merge(order: dict[str, Any]) -> dict[str, Any]:
    lines = Lines(order["line"], [order["home"], order["project"]] if order["watched"] else [])
    if order["bytes"] >= 0:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["bytes"], limit))
    error = ""
    sys.settrace(lines.enter)
    try:
        result = merge_kept(order["home"], find_kept(order["home"], order["work"]))
        error = ", ".join(f"{each.path} ({each.kind})" for each in result.conflicts)
    except MudroomError as failure:
        error = str(failure)
    finally:
        sys.settrace(None)
    found = {"states": lines.states, "sizes": sorted(lines.sizes)}
    return {"lines": lines.passed, "error": error, **found}


def merge_in_process(order: dict[str, Any]) -> dict[str, Any]:
    """Merge in a process of its own."""
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        os.close(reader)
        if order["user"] >= 0:
            os.setgroups([])
            os.setgid(order["user"])
            os.setuid(order["user"])
        os.write(writer, json.dumps(merge(order)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    result = json.loads(answer) if answer else {"lines": order["line"], "error": ""}
    return {**result, "killed": os.WIFSIGNALED(status)}


if __name__ == "__main__":
    for text in sys.stdin:
        print(json.dumps(merge_in_process(json.loads(text))), flush=True)
