"""Times of index files, so that git does not read each file of a new folder again.

git compares times in seconds. It reads a file again if the file and the index were written in the
same second; in a new folder these are all files. So the index gets a later time, and the files that
have changed since, by their times in nanoseconds, are removed from the index before it is used.
"""

from __future__ import annotations

import os

from .._listing import MAX_DEPTH
from .git import Git

_TRUST_NS = 2_000_000_000


def trust_index(index: str) -> None:
    """Have git trust the facts in an index that was written just now."""
    written = os.stat(index).st_mtime_ns
    os.utime(index, ns=(written, written + _TRUST_NS))


def forget_recent_files(git: Git, folder: str) -> None:
    """Remove the files from an index that changed after `trust_index`.

    Does nothing after git has written the index again.
    """
    try:
        facts = os.stat(git.index)
    except FileNotFoundError:
        return
    if facts.st_mtime_ns - _TRUST_NS > facts.st_ctime_ns or facts.st_mtime_ns < facts.st_ctime_ns:
        return
    written = facts.st_mtime_ns - _TRUST_NS
    recent = _list_changed_since(folder, written)
    if recent:
        data = b"".join(os.fsencode(path) + b"\0" for path in recent)
        git.run("update-index", "-z", "--force-remove", "--stdin", data=data)
    os.utime(git.index)


def _list_changed_since(folder: str, moment: int) -> list[str]:
    """Return the files that changed at a moment or later, in nanoseconds since 1970."""
    changed: list[str] = []
    left = [""]
    while left:
        path = left.pop()
        with os.scandir(os.path.join(folder, path)) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    if entry.stat(follow_symlinks=False).st_ctime_ns >= moment:
                        changed.append(path + entry.name)
                elif entry.name != ".git" and path.count("/") < MAX_DEPTH:
                    left.append(f"{path}{entry.name}/")  # no index has files that lie deeper
    return changed
