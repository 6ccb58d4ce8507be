"""Files and folders that only the user can read, whatever the umask."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .scratch_dirs import remove_tree


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700. Existing folders keep their mode."""
    if folder.is_dir():
        return
    for missing in reversed([folder, *folder.parents]):
        with suppress(FileExistsError):
            missing.mkdir(0o700)
            missing.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Create an empty file with mode 0600. Raises FileExistsError, OSError.

    Arguments:
        path: of the file. Missing folders are created with mode 0700.

    Example:
        import sqlite3
        from contextlib import suppress
        from pathlib import Path

        def open_state(path: Path) -> sqlite3.Connection:
            with suppress(FileExistsError):
                make_private_file(path)
            return sqlite3.connect(path)
    """
    make_private_folder(path.parent)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def make_spill_file(folder: str, name: str) -> str:
    """Create an empty file for text too long for a model; return its path.

    All runs of a session share the folder, and a run may open any file in it whose path it knows.
    So the path ends in 16 random digits: a run can open files it was given, but guess no others.
    """
    path = os.path.join(folder, f"{name}-{os.urandom(8).hex()}.txt")
    make_private_file(Path(path))
    return path


def write_private_file(path: Path, data: bytes) -> None:
    """Write a whole file; a new one gets mode 0600."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)


def replace_private_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: other processes see either the old or the new content.

    The new file has mode 0600. Raises OSError; the old file is then still there.

    Arguments:
        path: of the file. Missing folders are created with mode 0700.
        data: its whole new content.

    Example:
        from pathlib import Path

        def keep_answer(home: Path, answer: str) -> None:
            replace_private_file(home / "answers" / "last.txt", answer.encode())
    """
    make_private_folder(path.parent)
    _replace(path, data)


def replace_durably(path: Path, data: bytes, *, suffix: str) -> None:
    """Replace a file so that it is whole, or not there, after a power failure.

    `suffix` ends the name of the new file while it is written.
    """
    _replace(path, data, suffix=suffix, is_durable=True)
    sync_folder(path.parent)


def _replace(path: Path, data: bytes, *, suffix: str = "", is_durable: bool = False) -> None:
    import tempfile  # slow to import

    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=suffix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if is_durable:
                file.flush()
                os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_SESSION_FOLDERS = ("spills", "versions", "isolated", "batches")


def delete_local_files(home: Path, session: str) -> None:
    for name in _SESSION_FOLDERS:
        remove_tree(home / name / session)
