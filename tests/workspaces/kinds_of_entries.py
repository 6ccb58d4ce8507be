"""Every kind of entry that a path of a project can have, and how to make and describe one."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

IGNORED = "cache.tmp"
"""Name of a file that the projects of these tests ignore."""


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(f"{path.parent.name}/{path.name}: {text}")
    path.chmod(mode)


def _find_there(path: Path) -> str:
    """Return a path of the folder `there` which no other entry has: git sees no renames then."""
    return "there" + "/." * int(path.name[1:])


def _make_folder(path: Path, by: str) -> None:
    (path / "deep").mkdir(parents=True)
    _write(path / "inner", f"{by}\n")
    _write(path / "deep/script", f"{by}\n", 0o755)
    (path / "deep/link").symlink_to("script")


def _make_folder_with_ignored(path: Path, by: str) -> None:
    _make_folder(path, by)
    _write(path / IGNORED, f"{by} ignored\n")


KINDS: dict[str, Callable[[Path, str], object]] = {
    "nothing": lambda path, by: None,
    "file": lambda path, by: _write(path, f"{by}\n"),
    "program": lambda path, by: _write(path, f"{by}\n", 0o755),
    "link to a file": lambda path, by: path.symlink_to(f"{_find_there(path)}/{by}"),
    "link to a folder": lambda path, by: path.symlink_to(_find_there(path)),
    "dangling link": lambda path, by: path.symlink_to(f"{by}-nowhere"),
    "folder": _make_folder,
    "folder with an ignored file": _make_folder_with_ignored,
    "empty folder": lambda path, by: (path / "in").mkdir(parents=True),
    "pipe": lambda path, by: os.mkfifo(path),
}
"""Makes an entry, by its kind: (path, who makes it)."""

UNSEEN = ("nothing", "empty folder", "pipe")
"""Kinds of which a tree has nothing."""


Folder = dict[str, "Entry"]
Entry = None | str | tuple[str, bool] | Folder
"""What is at a path: nothing, a link or a pipe, a file with its execute bit, or a folder."""


def replace_entry(path: Path, kind: str, by: str) -> None:
    """Put an entry of a kind where another one is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    KINDS[kind](path, by)


def describe_entry(path: Path) -> Entry:
    """Return what is at a path: kind, content and execute bit, of a folder with all in it."""
    if not os.path.lexists(path):
        return None
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        return f"-> {os.readlink(path)}"
    if stat.S_ISDIR(facts.st_mode):
        return {name: describe_entry(path / name) for name in sorted(os.listdir(path))}
    if stat.S_ISREG(facts.st_mode):
        return path.read_text(), bool(facts.st_mode & stat.S_IXUSR)
    return "pipe"


def see_entry(path: Path) -> Entry:
    """Describe what a tree has of an entry: no empty folders, no pipes, nothing ignored."""
    return _leave_out(describe_entry(path))


def _leave_out(entry: Entry) -> Entry:
    if isinstance(entry, dict):
        seen = {name: _leave_out(each) for name, each in entry.items() if name != IGNORED}
        return {name: each for name, each in seen.items() if each is not None} or None
    return None if entry == "pipe" else entry
