"""The folder of sessions: listing, finding, deleting, making it private, and one writer for each file. Opens no database."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from ...errors import JournalBusy, UnknownName, UsageError

_SUFFIX, _WAL = ".db", ".db-wal"


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session as its folder shows it. `mtime`: last written, seconds since 1970. `size`: bytes on disk."""

    id: str
    path: Path
    mtime: float
    size: int


def session_path(home: str | Path, session: str) -> Path:
    """Where the session with that id is kept."""
    return Path(home, "sessions", session + _SUFFIX)


def list_sessions(home: str | Path) -> Iterator[SessionInfo]:
    """The sessions below `home`, the one written last first. None is opened; an empty file is no session yet."""
    folder = Path(home, "sessions")
    found: dict[str, os.stat_result] = {}
    with suppress(FileNotFoundError):
        with os.scandir(folder) as entries:
            found = {
                entry.name: entry.stat()
                for entry in entries
                if entry.name.endswith((_SUFFIX, _WAL))
            }
    listed: list[SessionInfo] = []
    for name, main in found.items():
        if name.endswith(_SUFFIX) and main.st_size:
            log = found.get(name + "-wal")
            parts = (
                [main, log] if log and log.st_size else [main]
            )  # a reader leaves an empty one, which is no news
            mtime, size = max(part.st_mtime for part in parts), sum(part.st_size for part in parts)
            listed.append(
                SessionInfo(
                    id=name.removesuffix(_SUFFIX), path=folder / name, mtime=mtime, size=size
                )
            )
    return iter(sorted(listed, key=lambda info: info.mtime, reverse=True))


def find_by_id(home: str | Path, name: str) -> Path:
    """The file of the session with that id, or the only one whose id begins so.

    Raises UnknownName when there is none, UsageError when there are several.
    """
    known = list(list_sessions(home))
    matches = [info for info in known if info.id == name] or [
        info for info in known if name and info.id.startswith(name)
    ]
    if len(matches) > 1:
        some = ", ".join(info.id for info in islice(matches, 5))
        raise UsageError(
            f"{len(matches)} sessions begin with {name!r}",
            remedy=f"Write more of the id: {some}{', …' * (len(matches) > 5)}",
        )
    if not matches:
        raise UnknownName("session", name, [info.id for info in islice(known, 20)])
    return matches[0].path


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents, for the user alone, whatever the umask; one that is there stays as it is."""
    for missing in reversed([folder, *folder.parents]):
        with suppress(FileExistsError):
            missing.mkdir(0o700)
            missing.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Make an empty file for the user alone, whatever the umask. Raises FileExistsError."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def write_private_file(path: Path, data: bytes) -> None:
    """Write a whole file for the user alone: a record is nobody else's business."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)


def lock(path: Path) -> int:
    """Become the one writer of a file: a held descriptor of `<file>.lock`, which names this process. Raises JournalBusy."""
    beside, tries = _beside(path), 3
    while True:
        held = os.open(beside, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid(held)
            os.close(held)
            if tries := tries - 1:  # `writer` holds it for a moment, too
                time.sleep(0.01)
                continue
            raise _busy(path, pid) from None
        if _is_same(held, beside):
            os.ftruncate(held, 0)
            os.pwrite(held, b"%d\n" % os.getpid(), 0)
            return held
        os.close(held)  # the writer before us removed it between our open and our flock


def unlock(path: Path, held: int) -> None:
    """Stop being the writer: the lock file goes while it is still held, so that no two can hold one each."""
    with suppress(OSError):
        _beside(path).unlink()
    os.close(held)


def writer_pid(path: Path) -> str:
    """Id of the process that writes a session, "" when none does."""
    try:
        looked = os.open(_beside(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(looked, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return ""
    except BlockingIOError:
        return _pid(looked)
    finally:
        os.close(looked)


def require_no_writer(path: Path) -> None:
    """Make sure that no process writes a session. Raises JournalBusy."""
    if pid := writer_pid(path):
        raise _busy(path, pid)


def delete_session(path: Path) -> None:
    """Delete a session: its record and its long outputs. Raises JournalBusy while it is written."""
    import shutil  # slow to import, and rarely needed

    held = lock(path)
    try:
        for part in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            part.unlink(missing_ok=True)
        shutil.rmtree(path.parent.parent / "spills" / path.stem, ignore_errors=True)
    finally:
        unlock(path, held)


def delete_old_sessions(home: str | Path, days: float) -> int:
    """Delete the sessions that were last written more than so many days ago; how many there were. One that is open stays."""
    deleted, before = 0, time.time() - days * 86_400
    for info in list_sessions(home):
        if info.mtime < before:
            with suppress(JournalBusy):
                delete_session(info.path)
                deleted += 1
    return deleted


def remove_half_created(path: Path) -> None:
    """Before a journal is made: remove what others left beside it that died before theirs were made."""
    names = set(os.listdir(path.parent))
    dead = {name.removesuffix(".new") for name in names if name.endswith(f"{_SUFFIX}.new")}
    dead |= {
        name.removesuffix(".lock") for name in names if name.endswith(f"{_SUFFIX}.lock")
    } - names
    for name in dead - {path.name}:
        with suppress(JournalBusy):  # it is being made right now
            other = path.with_name(name)
            held = lock(other)
            other.with_name(f"{name}.new").unlink(missing_ok=True)
            unlock(other, held)


def _busy(path: Path, pid: str) -> JournalBusy:
    remedy = "Wait for it or end it. --fork-session goes on with a copy; mudroom show reads it meanwhile."
    return JournalBusy(f"process {pid} is writing this session", where=str(path), remedy=remedy)


def _pid(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
