"""Settings of mudroom's own processes: garbage collector thresholds, the limit on open files."""

from __future__ import annotations

import gc
import resource
from contextlib import suppress

# Starting the command line makes about 50,000 objects, none of them garbage.
_FIRST_THRESHOLD = 100_000
# With Python's defaults, each further child makes the collector take more time: with 500
# children, a sixth of all CPU time. It stops the event loop for up to 0.5 µs per object.
_THRESHOLDS = (50_000, 40, 100)


def collect_garbage_less_often() -> None:
    """Set thresholds suited to many long-lived objects."""
    gc.set_threshold(_FIRST_THRESHOLD, *_THRESHOLDS[1:])
    if _collect_less_at_once not in gc.callbacks:
        gc.callbacks.append(_collect_less_at_once)


def _collect_less_at_once(phase: str, info: dict[str, int]) -> None:
    """Set the final thresholds after the start; called by the garbage collector."""
    if phase == "stop" and gc.get_threshold()[0] == _FIRST_THRESHOLD:
        gc.set_threshold(*_THRESHOLDS)


# Enough for 10,000 connections. Some programs get slow if they inherit a limit of millions.
_WANTED_FILES = 16_384


def raise_open_file_limit() -> None:
    """Raise this process's limit as far as its user may, to at most 16,384."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems allow less than they report.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def count_allowed_connections(share: float, most: int) -> int:
    """Return how many connections may use a share of the files this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if soft == resource.RLIM_INFINITY else max(16, min(most, int(soft * share)))
