"""This process's limit on open files. Each connection to a model takes one."""

import resource
from contextlib import suppress

# Enough for 10,000 connections. Some programs get slow if they inherit a limit of millions.
_WANTED = 16_384


def raise_open_file_limit() -> None:
    """Raise this process's limit as far as its user may, to at most 16,384."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems allow less than they report.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def get_open_file_limit() -> int | None:
    """Return how many files this process may have open, None for no limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft
