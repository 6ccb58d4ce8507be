"""What a command did to protected names that no wall held it back from: undone when it ends. Standard library only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from ...._platform.protected_names import is_protected

GIT_SETTINGS = ("commondir", "config", "config.worktree", "hooks")
"""What in a git folder decides which programs git runs."""

_MOST_FILES, _MOST_BYTES = 500, 8 << 20


class PathState(NamedTuple):
    """One file, folder or link as it was: what tells that it has changed, its mode, and its bytes or the link's target."""

    signature: tuple[int, ...]
    mode: int
    data: bytes

    def is_same(self, other: PathState) -> bool:
        """Whether nothing has changed that matters: one that was put back is another file, and the same."""
        return self.signature == other.signature or (
            stat.S_IFMT(self.mode) != stat.S_IFDIR and self[1:] == other[1:]
        )


class ProtectedFiles:
    """Watches the protected names at the root of a workspace.

    Arguments:
        root: the workspace. away: folder that takes what is moved out of the way.
        restore: whether what exists is held, too; else that is the mounts' work, and only new names and links are looked at.
    """

    def __init__(self, root: str, quarantine: str, *, restore_existing: bool) -> None:
        self._root, self._away, self._restore = root, quarantine, restore_existing
        self._copies: dict[str, PathState] = {}
        self._git: tuple[int, int] | None = None

    def take_snapshot(self) -> None:
        """Take how it is now for how it shall be. Call it while no command runs."""
        self._copies = dict(self._seen())
        self._git = self._identity(".git")

    def restore(self) -> list[str]:
        """Put back what has changed since; the names, relative to the root."""
        mended = self._git_folder()
        now = dict(self._seen())
        for path in sorted(now.keys() - self._copies.keys()):
            if os.path.lexists(self._at(path)):
                self._put_away(path)
                mended.append(path)
        for path, copy in self._copies.items():
            if path not in now or not now[path].is_same(copy):
                self._put_back(path, copy)
                mended.append(path)
        return mended

    def _git_folder(self) -> list[str]:
        """A git folder that was renamed and another put in its place: each goes where it belongs, when it can be found."""
        if not self._restore or self._git is None or self._identity(".git") == self._git:
            return []
        if os.path.lexists(self._at(".git")):
            self._put_away(".git")
        for name in os.listdir(self._root):
            if self._identity(name) == self._git:
                os.rename(self._at(name), self._at(".git"))
        return [".git"]

    def _identity(self, name: str) -> tuple[int, int] | None:
        try:
            found = os.lstat(self._at(name))
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None

    def _seen(self) -> Iterator[tuple[str, PathState]]:
        """All that is held, a folder before what is in it, up to a bounded number of files and bytes."""
        room = [_MOST_FILES, _MOST_BYTES]
        for name in sorted(filter(is_protected, os.listdir(self._root))):
            if name == ".git" and (git := self._identity(name)):
                yield name, PathState(git if self._restore else (stat.S_IFDIR,), stat.S_IFDIR, b"")
                for inner in GIT_SETTINGS:
                    yield from self._below(f".git/{inner}", room)
            else:
                yield from self._below(name, room)

    def _below(self, path: str, room: list[int]) -> Iterator[tuple[str, PathState]]:
        found = self._copied(path, room)
        if found is None:
            return
        yield path, found
        if self._restore and stat.S_ISDIR(found.mode) and room[0] > 0:
            try:
                names = sorted(os.listdir(self._at(path)))
            except OSError:
                return
            for name in names:
                yield from self._below(f"{path}/{name}", room)

    def _copied(self, path: str, room: list[int]) -> PathState | None:
        try:
            found = os.lstat(self._at(path))
        except OSError:
            return None
        mode, sign = found.st_mode, (stat.S_IFMT(found.st_mode),)
        if stat.S_ISLNK(mode):
            return PathState(
                (*sign, found.st_ino, found.st_ctime_ns),
                mode,
                os.fsencode(os.readlink(self._at(path))),
            )
        if not self._restore or stat.S_ISDIR(mode):
            return PathState(sign, mode, b"")
        room[0] -= 1
        sign = (*sign, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, mode)
        known = self._copies.get(path)
        if known is not None and known.signature == sign:
            return known
        return PathState(sign, mode, self._bytes(path, mode, room))

    def _bytes(self, path: str, mode: int, room: list[int]) -> bytes:
        if not stat.S_ISREG(mode) or room[0] < 0 or room[1] <= 0:
            return b""
        try:
            with open(self._at(path), "rb") as file:
                data = file.read(room[1])
        except OSError:
            return b""
        room[1] -= len(data)
        return data

    def _put_back(self, path: str, copy: PathState) -> None:
        whole = self._at(path)
        if os.path.lexists(whole):
            self._put_away(path)
        try:
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            if stat.S_ISLNK(copy.mode):
                os.symlink(copy.data, os.fsencode(whole))
            elif stat.S_ISDIR(copy.mode):
                os.mkdir(whole, stat.S_IMODE(copy.mode))
            elif self._restore and stat.S_ISREG(copy.mode):
                made = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                with os.fdopen(made, "wb") as file:
                    file.write(copy.data)
                    os.fchmod(made, stat.S_IMODE(copy.mode))
        except OSError:
            pass  # a folder above it is not there: what is next in line makes it

    def _put_away(self, path: str) -> None:
        import shutil

        os.makedirs(self._away, mode=0o700, exist_ok=True)
        name, n = path.replace("/", "_"), 0
        while os.path.lexists(target := os.path.join(self._away, f"{n}-{name}")):
            n += 1
        shutil.move(self._at(path), target)

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path)
