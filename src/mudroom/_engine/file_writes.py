"""Tools' file writes: recorded before they happen (S3), refused after the run has ended (S8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from stat import S_IFMT, S_IMODE, S_ISLNK, S_ISREG, S_IXUSR
from typing import Any

from msgspec import Struct

from .._core.ports import ContentCheck, Workspace, WorkspaceWrapper
from .._platform.private_files import replace_private_file
from ..errors import WorkspaceError


class FileWrite(Struct, frozen=True):
    """The write or removal of a file; see `FileWriteIntended`."""

    path: str
    before: str
    after: str
    old_mode: int | None
    executable: bool | None


class RecordedWorkspace(WorkspaceWrapper):
    """A workspace that announces each write and removal before it happens.

    If `before_write` raises, nothing is written. `after_write` gets the path and whether the write
    succeeded.
    """

    def __init__(
        self,
        inner: Workspace,
        before_write: Callable[[FileWrite], None],
        after_write: Callable[[str, bool], None],
    ) -> None:
        super().__init__(inner)
        self._before_write = before_write
        self._after_write = after_write

    def write(
        self,
        path: str,
        data: bytes,
        *,
        mode: int | None = None,
        check: ContentCheck | None = None,
    ) -> bool:
        after = sha256(data).hexdigest()
        if S_ISLNK(mode or 0):
            after = hash_link(data)
        with self._announce(path, after, mode):
            return self.inner.write(path, data, mode=mode, check=check)

    def remove(self, path: str, *, check: ContentCheck | None = None) -> None:
        with self._announce(path, "", None):
            self.inner.remove(path, check=check)

    @contextmanager
    def _announce(self, path: str, after: str, mode: int | None) -> Generator[None]:
        """Announce a write before it happens, and its end."""
        located = self.inner.locate(path)
        follows = bool(after) and not S_IFMT(mode or 0)
        before = hash_file(self.inner, located) if follows else hash_entry(self.inner, located)
        old_mode = find_mode(self.inner, located, before)
        executable = None
        if after and not is_link_hash(after):
            executable = is_executable(old_mode if mode is None else mode)
        self._before_write(FileWrite(located, before, after, old_mode, executable))
        is_written = False
        try:
            yield
            is_written = True
        finally:
            self._after_write(located, is_written)


class WriteBarrier:
    """Counts a run's file writes, which happen in other threads.

    Once closed, no write starts; `close` waits for those under way (S8).
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._running = 0
        self._is_closed = False
        self._idle: asyncio.Event | None = None

    def enter(self, path: str) -> None:
        """Start a write; `leave` ends it. Raises WorkspaceError if the barrier is closed."""
        if self._is_closed:
            raise WorkspaceError("the run has ended", where=path, remedy="Nothing was written.")
        self._running += 1

    def leave(self) -> None:
        self._running -= 1
        if self._idle and not self._running:
            self._idle.set()

    async def close(self) -> None:
        self._is_closed = True
        if self._running:
            self._idle = asyncio.Event()
            await self._idle.wait()


def run_from_any_thread(
    loop: asyncio.AbstractEventLoop,
    coroutine: Callable[[], Coroutine[Any, Any, None]],
    on_loop: Callable[[], object],
) -> None:
    """Run a coroutine on the loop from another thread, and wait for it.

    On the loop's own thread, which must not block, `on_loop` is called instead.
    """
    try:
        current = asyncio.get_running_loop()
    except RuntimeError:
        current = None
    if current is loop:
        on_loop()
    else:
        asyncio.run_coroutine_threadsafe(coroutine(), loop).result()


_LINK = "link:"  # start of the hash of a link: the sha256 of its path follows
_BLOCK_SIZE = 1 << 20  # bytes read at once to hash a file


def hash_file(workspace: Workspace, path: str) -> str:
    """Return a file's sha256, "" if it does not exist or cannot be read."""
    digest = sha256()
    offset = 0
    try:
        while block := workspace.read(path, offset, _BLOCK_SIZE):
            digest.update(block)
            offset += len(block)
            if len(block) < _BLOCK_SIZE:
                break
    except WorkspaceError:
        return ""
    return digest.hexdigest()


def hash_link(target: bytes) -> str:
    return _LINK + sha256(target).hexdigest()


def is_link_hash(text: str) -> bool:
    return text.startswith(_LINK)


def hash_entry(workspace: Workspace, path: str) -> str:
    """Hash a link itself; anything else as `hash_file` does."""
    target = workspace.local.read_link(path) if workspace.local else None
    return hash_file(workspace, path) if target is None else hash_link(target)


def find_mode(workspace: Workspace, path: str, digest: str) -> int | None:
    """Return the permission bits of a file with this hash, None if there is no file or a link."""
    if not digest or is_link_hash(digest):
        return None
    try:
        mode = workspace.stat(path).mode
    except WorkspaceError:
        return None
    return S_IMODE(mode) & 0o777 if S_ISREG(mode) else None


def is_executable(mode: int | None) -> bool:
    """Return whether the owner may execute a file; git knows no more of a mode."""
    return bool((mode or 0) & S_IXUSR)


def hash_present(workspace: Workspace, path: str, *recorded: str) -> str:
    """Hash a file for comparison with the hashes recorded for a write."""
    has_link = any(map(is_link_hash, recorded))
    return hash_entry(workspace, path) if has_link else hash_file(workspace, path)


def read_entry(workspace: Workspace, path: str, size: int, *recorded: str) -> bytes:
    """Read the first bytes of a file, or a link's path if one of the hashes is a link's."""
    if any(map(is_link_hash, recorded)) and workspace.local:
        target = workspace.local.read_link(path)
        if target is not None:
            return target
    return workspace.read(path, 0, size)


MAX_VERSION_BYTES = 8 << 20  # contents of larger files are not kept


class FileVersions:
    """Contents of files by sha256, in a folder that no tool and no sandbox reads."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def keep(self, workspace: Workspace, path: str, sha256: str) -> None:
        """Keep a file's current content, unless it is large. The hash of a missing file is ""."""
        target = Path(self.folder, sha256)
        if not sha256 or target.exists():
            return
        try:
            data = read_entry(workspace, path, MAX_VERSION_BYTES + 1, sha256)
            if len(data) <= MAX_VERSION_BYTES:
                replace_private_file(target, data)
        except (OSError, WorkspaceError):
            pass  # The write may go on; restoring it later reports the missing content.

    def read(self, sha256: str) -> bytes | None:
        """Return the content with this hash; b"" for no file, None if it was not kept."""
        if not sha256:
            return b""
        try:
            return Path(self.folder, sha256).read_bytes()
        except OSError:
            return None
