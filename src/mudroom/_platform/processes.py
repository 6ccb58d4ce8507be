"""The process table of Linux, read from procfs. Without procfs, every function returns nothing.

Standard library only, because the sandbox daemon imports this module. It is also the fastest way
(see docs/adr), which matters because the table is read at the end of every command.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import NamedTuple


class Process(NamedTuple):
    """A process. `state` is the kernel's letter; `started` is in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    session: int
    threads: int
    started: int

    @property
    def is_dead(self) -> bool:
        return self.state in "ZX"


def list_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def list_processes() -> Iterator[Process]:
    for pid in list_pids():
        if process := read_process(pid):
            yield process


def _read_fields(path: str) -> list[bytes]:
    with open(path, "rb", buffering=0) as file:
        line = file.read(1024)
    # The program's name is in brackets and may itself contain blanks and brackets.
    return line[line.rindex(b")") + 2 :].split()


def read_process(pid: int) -> Process | None:
    try:
        fields = _read_fields(f"/proc/{pid}/stat")
    except OSError:
        return None
    return Process(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        threads=int(fields[17]),
        started=int(fields[19]),
    )


class Activity(NamedTuple):
    """What a process is doing at one moment.

    Arguments:
        is_runnable: true if one of its threads runs or waits for a processor.
        cpu_seconds: CPU time used since its start.
    """

    is_runnable: bool
    cpu_seconds: float


def read_activity(pid: int) -> Activity | None:
    states: set[bytes] = set()
    ticks = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            fields = _read_fields(f"/proc/{pid}/task/{thread}/stat")
            states.add(fields[0])
            ticks += int(fields[11]) + int(fields[12])
    except OSError:
        return None
    return Activity(b"R" in states, ticks / os.sysconf("SC_CLK_TCK"))


def read_environ(pid: int) -> bytes | None:
    """Read the environment a process was started with, b"" if that is impossible.

    None while the process is starting a program, whose environment the kernel shows a moment later.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
        if not environ and _has_environ(pid):
            return None
    except OSError:
        return b""
    return environ


def _has_environ(pid: int) -> bool:
    """Return whether a process has an environment, or will have one after its `exec`."""
    fields = _read_fields(f"/proc/{pid}/stat")
    memory, code, start, end = (int(fields[n]) for n in (20, 23, 47, 48))
    # Kernel threads and dead processes have no memory. During `exec`, the kernel sets the address
    # of the code last, and until then the environment may look empty.
    return memory > 0 and (code == 0 or start < end)


def read_memory() -> int:
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def list_children(pid: int | None = None) -> list[int]:
    """Return the ids of the children of a process's first thread; of this process by default."""
    pid = pid or os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):  # or a kernel without checkpoint support
        return [process.pid for process in list_processes() if process.parent == pid]


def count_user_threads() -> int:
    """Count this user's threads as the kernel does for RLIMIT_NPROC."""
    count = 0
    for pid in list_pids():
        try:
            is_own = os.stat(f"/proc/{pid}").st_uid == os.getuid()
        except OSError:
            continue
        if is_own and (process := read_process(pid)):
            count += process.threads
    return count


def kill_process(pid: int) -> None:
    """Kill a process, if it exists and may be killed. Id 0 means none."""
    if not pid:
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


def reap_process(pid: int) -> None:
    """Reap a child that has ended; do nothing if it is running or not a child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
