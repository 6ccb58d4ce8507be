"""Times of index files, so that git does not read each file of a new folder again.

git compares times in seconds. It reads a file again if the file and the index were written in the
same second; in a new folder these are all files. So the index gets a later time, and before it is
used, it loses what it knows of the times of files that have changed since, by their times in
nanoseconds. Their contents stay in it: a file that cannot be stored is no file that was removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from .git import Git, split_at_nul

_TRUST_NS = 2_000_000_000


def trust_index(index: str) -> None:
    """Have git trust the facts in an index that was written just now."""
    written = os.stat(index).st_mtime_ns
    os.utime(index, ns=(written, written + _TRUST_NS))


def forget_recent_files(git: Git, folder: str) -> None:
    """Have git read the files again that changed after `trust_index`.

    Does nothing after git has written the index again.
    """
    try:
        facts = os.stat(git.index)
    except FileNotFoundError:
        return
    if facts.st_mtime_ns - _TRUST_NS > facts.st_ctime_ns or facts.st_mtime_ns < facts.st_ctime_ns:
        return
    written = facts.st_mtime_ns - _TRUST_NS
    recent = {f"{git.prefix}{path}" for path in _find_changed_since(folder, written)}
    if recent:
        entries = split_at_nul(git.run("ls-files", "-z", "--stage", "--full-name", "--", "."))
        # An entry that is written again has no times.
        data = [f"{entry}\0" for entry in entries if entry.partition("\t")[2] in recent]
        git.run("update-index", "-z", "--index-info", data=os.fsencode("".join(data)))
    os.utime(git.index)


def _find_changed_since(folder: str, moment: int, path: str = "") -> Iterator[str]:
    """Yield the files that changed at a moment or later, in nanoseconds since 1970."""
    with os.scandir(os.path.join(folder, path)) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != ".git":
                    yield from _find_changed_since(folder, moment, f"{path}{entry.name}/")
            elif entry.stat(follow_symlinks=False).st_ctime_ns >= moment:
                yield path + entry.name
