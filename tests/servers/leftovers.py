"""What a test leaves behind: tasks, child processes and open files."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Self

from msgspec import Struct

from mudroom._platform.processes import list_children


class Resources(Struct, frozen=True):
    """What exists at one time.

    Arguments:
        tasks: of the event loop, without the present one. processes: children of this process.
        files: what each open file descriptor refers to, with the number of descriptors.
    """

    tasks: frozenset[asyncio.Task[object]]
    processes: frozenset[int]
    files: Counter[str]

    @classmethod
    def list_all(cls) -> Self:
        """Return what exists now."""
        here = asyncio.current_task()
        return cls(
            frozenset(
                task
                for task in asyncio.all_tasks()
                if task is not here and not _belongs_to_loop(task)
            ),
            frozenset(list_children()),
            _list_files(),
        )

    def describe_new(self) -> str:
        """Return what exists now and did not then, "" for nothing."""
        now = Resources.list_all()
        new = [
            *map(repr, now.tasks - self.tasks),
            *(f"process {pid}" for pid in now.processes - self.processes),
            *(now.files - self.files),
        ]
        return "\n".join(sorted(new))


def _belongs_to_loop(task: asyncio.Task[object]) -> bool:
    """Return whether the package that sends events has started a task for the whole event loop.

    It starts one at the first stream, which ends with the loop.
    """
    return getattr(task.get_coro(), "__qualname__", "") == "_shutdown_watcher"


def _list_files() -> Counter[str]:
    """Return what the descriptors of this process refer to."""
    files: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            files[os.readlink(f"/proc/self/fd/{number}")] += 1
        except OSError:  # the descriptor of the list itself
            continue
    return files
