"""Folder of journal files: list and delete them without opening a database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from ...errors import JournalBusy, UnknownName, UsageError
from .lock import lock, unlock

_SUFFIX = ".db"
_LOG_SUFFIX = ".db-wal"
_MAX_KNOWN = 20
"""Most ids that an error names as similar."""


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session as its folder shows it.

    `mtime`: last write, seconds since 1970. `size`: bytes on disk.
    """

    id: str
    path: Path
    mtime: float
    size: int


def session_path(home: str | Path, session: str) -> Path:
    """Return the path of a session's journal file."""
    return Path(home, "sessions", session + _SUFFIX)


def list_sessions(home: str | Path) -> Iterator[SessionInfo]:
    """Yield the sessions of a state folder, last written first. Empty files are skipped."""
    folder = Path(home, "sessions")
    stats: dict[str, os.stat_result] = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((_SUFFIX, _LOG_SUFFIX)):
                stats[entry.name] = entry.stat()
    infos: list[SessionInfo] = []
    for name, stat in stats.items():
        if not name.endswith(_SUFFIX) or not stat.st_size:
            continue
        mtime, size = stat.st_mtime, stat.st_size
        log = stats.get(name + "-wal")
        # A reader leaves an empty log behind; its time says nothing.
        if log and log.st_size:
            mtime = max(mtime, log.st_mtime)
            size += log.st_size
        session = name.removesuffix(_SUFFIX)
        infos.append(SessionInfo(id=session, path=folder / name, mtime=mtime, size=size))
    return iter(sorted(infos, key=lambda info: info.mtime, reverse=True))


def find_by_id(home: str | Path, name: str) -> Path:
    """Return the file of the session with this id or with the only id that begins with it.

    Raises UnknownName if there is none, UsageError if there are several.
    """
    known = list(list_sessions(home))
    matches = [info for info in known if info.id == name]
    if name and not matches:
        matches = [info for info in known if info.id.startswith(name)]
    if not matches:
        raise UnknownName("session", name, [info.id for info in islice(known, _MAX_KNOWN)])
    if len(matches) > 1:
        ids = ", ".join(info.id for info in matches[:5])
        more = ", …" if len(matches) > 5 else ""
        raise UsageError(
            f"{len(matches)} sessions begin with {name!r}",
            remedy=f"Write more of the id: {ids}{more}",
        )
    return matches[0].path


def delete_session(path: Path) -> None:
    """Delete a session: its journal and its long outputs.

    Raises JournalBusy while a process writes it.
    """
    import shutil  # slow to import, and rarely needed

    descriptor = lock(path)
    try:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.rmtree(path.parent.parent / "spills" / path.stem, ignore_errors=True)
    finally:
        unlock(path, descriptor)


def delete_old_sessions(home: str | Path, days: float) -> int:
    """Delete the sessions last written more than `days` days ago.

    Return their number. Open sessions stay.
    """
    deleted = 0
    oldest = time.time() - days * 86_400
    for info in list_sessions(home):
        if info.mtime < oldest:
            with suppress(JournalBusy):
                delete_session(info.path)
                deleted += 1
    return deleted


def remove_half_created(path: Path) -> None:
    """Delete half-created journal files left by processes that died during creation.

    Arguments:
        path: the journal about to be created. Its folder is searched; its own files stay.
    """
    names = set(os.listdir(path.parent))
    created = {name.removesuffix(".new") for name in names if name.endswith(f"{_SUFFIX}.new")}
    locked = {name.removesuffix(".lock") for name in names if name.endswith(f"{_SUFFIX}.lock")}
    for name in created | (locked - names):
        if name == path.name:
            continue
        other = path.with_name(name)
        # Busy: another process is creating it at this moment.
        with suppress(JournalBusy):
            descriptor = lock(other)
            other.with_name(f"{name}.new").unlink(missing_ok=True)
            unlock(other, descriptor)
