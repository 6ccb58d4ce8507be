"""A place for the files of tests that takes no time: journals wait for the disk at each commit."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path


@cache
def find_memory_folder() -> Path | None:
    """Return a folder in memory, None where there is none with space for the tests."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free >= 1 << 30 else None
