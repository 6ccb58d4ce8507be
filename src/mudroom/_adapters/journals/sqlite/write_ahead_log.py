"""The end of SQLite's write-ahead log: did a killed process leave half a transaction?

Format: https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

from pathlib import Path

_HEADER = 32
_FRAME_HEADER = 24


def has_torn_tail(path: Path) -> bool:
    """Return whether the log of a file ends in an unfinished transaction.

    SQLite ignores those frames by itself. They are looked for so that the user is told.
    """
    log = path.with_name(path.name + "-wal")
    data = log.read_bytes() if log.exists() else b""
    if len(data) < _HEADER:
        return False
    frame_size = int.from_bytes(data[8:12], "big") + _FRAME_HEADER
    salt = data[16:24]  # frames of an earlier generation of the log have another one
    is_committed = True
    start = _HEADER
    while start + _FRAME_HEADER <= len(data) and data[start + 8 : start + 16] == salt:
        is_complete = start + frame_size <= len(data)
        # The last frame of a transaction has the size of the file after it; others have 0.
        is_committed = is_complete and data[start + 4 : start + 8] != bytes(4)
        start += frame_size
    return not is_committed
