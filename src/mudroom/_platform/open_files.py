"""Limit of open files of this process. Each connection to a model is one."""

import resource
from contextlib import suppress

_WANTED = 16_384
"""Enough for 10,000 connections. Some programs get slow if they inherit a limit of millions."""


def raise_open_file_limit() -> None:
    """Raise the limit of this process to what its user may have, at most 16,384."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # A system may allow less than it says.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def get_open_file_limit() -> int | None:
    """Return how many files this process may have open; None if there is no limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft
