"""Protected files at the top of a workspace: a command's changes are undone when it ends.

Standard library only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from ....._platform.protected_names import is_protected

GIT_SETTINGS = ("commondir", "config", "config.worktree", "hooks")
"""Entries of a git folder that decide which programs git runs."""

_MAX_FILES = 500
_MAX_BYTES = 8 << 20


class PathState(NamedTuple):
    """The state of a file, folder or link.

    `signature` changes when the file changes; `data` is its content, or a link's target.
    """

    signature: tuple[int, ...]
    mode: int
    data: bytes

    def is_same(self, other: PathState) -> bool:
        """Return whether two states are equal. Restoring a file changes only its signature."""
        if self.signature == other.signature:
            return True
        is_folder = stat.S_IFMT(self.mode) == stat.S_IFDIR
        return not is_folder and self[1:] == other[1:]


class _Budget:
    def __init__(self) -> None:
        self.files = _MAX_FILES
        self.bytes = _MAX_BYTES


class ProtectedFiles:
    """A record of the protected names at the top of a workspace.

    Arguments:
        quarantine: the folder to move new protected files to.
        restore_existing: restore changed or removed files. If False, mounts prevent such changes,
            and only new names and links are checked.
    """

    def __init__(self, workspace: str, quarantine: str, *, restore_existing: bool) -> None:
        self._workspace = workspace
        self._quarantine = quarantine
        self._restore_existing = restore_existing
        self._snapshot: dict[str, PathState] = {}
        self._git_folder: tuple[int, int] | None = None

    def take_snapshot(self) -> None:
        """Record the current state. Call it only while no command is running."""
        self._snapshot = dict(self._read_states())
        self._git_folder = self._identify_folder(".git")

    def restore(self) -> list[str]:
        """Undo changes since the snapshot; return their paths, relative to the workspace."""
        restored = self._restore_git_folder()
        now = dict(self._read_states())
        for path in sorted(now.keys() - self._snapshot.keys()):
            if os.path.lexists(self._make_absolute(path)):
                self._move_to_quarantine(path)
                restored.append(path)
        for path, state in self._snapshot.items():
            if path not in now or not now[path].is_same(state):
                self._restore_path(path, state)
                restored.append(path)
        return restored

    def _restore_git_folder(self) -> list[str]:
        """Move a renamed git folder back, if it can be found, and move its replacement away."""
        if not self._restore_existing or self._git_folder is None:
            return []
        if self._identify_folder(".git") == self._git_folder:
            return []
        if os.path.lexists(self._make_absolute(".git")):
            self._move_to_quarantine(".git")
        for name in os.listdir(self._workspace):
            if self._identify_folder(name) == self._git_folder:
                os.rename(self._make_absolute(name), self._make_absolute(".git"))
        return [".git"]

    def _identify_folder(self, name: str) -> tuple[int, int] | None:
        """Read an identity that a folder keeps when renamed; None if it is not a folder."""
        try:
            info = os.lstat(self._make_absolute(name))
        except OSError:
            return None
        return (info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None

    def _read_states(self) -> Iterator[tuple[str, PathState]]:
        """Yield all protected paths and their states, folders before their contents."""
        budget = _Budget()
        for name in sorted(filter(is_protected, os.listdir(self._workspace))):
            git_folder = self._identify_folder(name) if name == ".git" else None
            if git_folder is None:
                yield from self._read_tree(name, budget)
                continue
            signature = git_folder if self._restore_existing else (stat.S_IFDIR,)
            yield name, PathState(signature, stat.S_IFDIR, b"")
            for inner in GIT_SETTINGS:
                yield from self._read_tree(f".git/{inner}", budget)

    def _read_tree(self, path: str, budget: _Budget) -> Iterator[tuple[str, PathState]]:
        state = self._read_state(path, budget)
        if state is None:
            return
        yield path, state
        if not self._restore_existing or not stat.S_ISDIR(state.mode) or budget.files <= 0:
            return
        try:
            names = sorted(os.listdir(self._make_absolute(path)))
        except OSError:
            return
        for name in names:
            yield from self._read_tree(f"{path}/{name}", budget)

    def _read_state(self, path: str, budget: _Budget) -> PathState | None:
        absolute = self._make_absolute(path)
        try:
            info = os.lstat(absolute)
        except OSError:
            return None
        mode = info.st_mode
        kind = stat.S_IFMT(mode)
        if stat.S_ISLNK(mode):
            signature = (kind, info.st_ino, info.st_ctime_ns)
            return PathState(signature, mode, os.fsencode(os.readlink(absolute)))
        if not self._restore_existing or stat.S_ISDIR(mode):
            return PathState((kind,), mode, b"")
        budget.files -= 1
        times = (info.st_mtime_ns, info.st_ctime_ns)
        signature = (kind, info.st_ino, info.st_size, *times, mode)
        known = self._snapshot.get(path)
        if known is not None and known.signature == signature:
            return known
        return PathState(signature, mode, self._read_content(path, mode, budget))

    def _read_content(self, path: str, mode: int, budget: _Budget) -> bytes:
        if not stat.S_ISREG(mode) or budget.files < 0 or budget.bytes <= 0:
            return b""
        try:
            with open(self._make_absolute(path), "rb") as file:
                data = file.read(budget.bytes)
        except OSError:
            return b""
        budget.bytes -= len(data)
        return data

    def _restore_path(self, path: str, state: PathState) -> None:
        absolute = self._make_absolute(path)
        if os.path.lexists(absolute):
            self._move_to_quarantine(path)
        try:
            os.makedirs(os.path.dirname(absolute), exist_ok=True)
            if stat.S_ISLNK(state.mode):
                os.symlink(state.data, os.fsencode(absolute))
            elif stat.S_ISDIR(state.mode):
                os.mkdir(absolute, stat.S_IMODE(state.mode))
            elif self._restore_existing and stat.S_ISREG(state.mode):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                descriptor = os.open(absolute, flags, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(state.data)
                    os.fchmod(descriptor, stat.S_IMODE(state.mode))
        except OSError:
            pass  # a parent folder is missing; it is restored by a later path

    def _move_to_quarantine(self, path: str) -> None:
        import shutil

        os.makedirs(self._quarantine, mode=0o700, exist_ok=True)
        name = path.replace("/", "_")
        number = 0
        while os.path.lexists(target := os.path.join(self._quarantine, f"{number}-{name}")):
            number += 1
        shutil.move(self._make_absolute(path), target)

    def _make_absolute(self, path: str) -> str:
        return os.path.join(self._workspace, path)
