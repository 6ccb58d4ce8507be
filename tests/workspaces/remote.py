"""A workspace as on another machine: it gives no access to open files."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom._core.ports import FileInfo, LocalFiles, Workspace


class RemoteWorkspace:
    """Passes every call of the port to another workspace, but has no local files."""

    def __init__(self, inner: Workspace) -> None:
        self._inner = inner

    @property
    def root(self) -> str:
        return self._inner.root

    @property
    def local(self) -> LocalFiles | None:
        return None

    def locate(self, path: str) -> str:
        return self._inner.locate(path)

    def stat(self, path: str) -> FileInfo:
        return self._inner.stat(path)

    def read(self, path: str, offset: int, size: int) -> bytes:
        return self._inner.read(path, offset, size)

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        return self._inner.write(path, data, mode=mode)

    def remove(self, path: str) -> None:
        self._inner.remove(path)

    def remove_unfinished(self, path: str) -> None:
        self._inner.remove_unfinished(path)

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        return self._inner.walk(path, ignored=ignored, skipped=skipped)
