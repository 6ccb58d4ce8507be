"""Sets limits and signals of a command's process before it starts. Standard library only."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Generator

DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
"""Signals whose handling is reset, so that a command finds the usual defaults."""

_RESOURCES = {
    "memory": resource.RLIMIT_DATA,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
_OOM_SCORE = "/proc/self/oom_score_adj"
_KILLED_FIRST = "1000"


def compute_limits(limits: dict[str, int]) -> list[tuple[int, int]]:
    """Lower the fields of ResourceLimits to the daemon's own limits."""
    effective = [(resource.RLIMIT_CORE, 0)]
    for name, kind in _RESOURCES.items():
        limit = limits[name]
        own = resource.getrlimit(kind)[1]
        if own != resource.RLIM_INFINITY:
            limit = min(limit, own)
        effective.append((kind, limit))
    return effective


def set_killed_first() -> None:
    """Make the kernel kill this process first when memory runs out."""
    with open(_OOM_SCORE, "w") as score:
        score.write(_KILLED_FIRST)


@contextlib.contextmanager
def kill_children_first() -> Generator[None]:
    """Make the kernel first kill processes started in this context when memory runs out."""
    with open(_OOM_SCORE, "r+") as score:
        before = score.read()
        score.write(_KILLED_FIRST)
        score.flush()
        try:
            yield
        finally:
            score.seek(0)
            score.write(before)
