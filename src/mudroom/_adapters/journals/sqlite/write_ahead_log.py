"""Looks at the end of SQLite's write-ahead log for half a transaction of a killed process.

Format: https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

from pathlib import Path

_HEADER = 32
_FRAME_HEADER = 24


def has_torn_tail(path: Path) -> bool:
    """Return whether a file's log ends in an unfinished transaction.

    SQLite itself ignores such frames silently; they are detected to tell the user.
    """
    log = path.with_name(path.name + "-wal")
    data = log.read_bytes() if log.exists() else b""
    if len(data) < _HEADER:
        return False
    frame_size = int.from_bytes(data[8:12], "big") + _FRAME_HEADER
    salt = data[16:24]  # frames left from an earlier generation of the log have another one
    is_committed = True
    start = _HEADER
    while start + _FRAME_HEADER <= len(data) and data[start + 8 : start + 16] == salt:
        is_complete = start + frame_size <= len(data)
        # A transaction's last frame states the size of the database; all others state 0.
        is_committed = is_complete and data[start + 4 : start + 8] != bytes(4)
        start += frame_size
    return not is_committed
