"""Packs of trees that the session writes for machines which do not see its folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ...errors import WorkspaceError

PIECE_BYTES = 256 << 10
"""Maximum bytes of one piece."""

_MAX_PACKS = 4
"""Packs that stay for further machines that ask for the same tree."""

PackKey = tuple[str, tuple[str, ...]]
"""A tree, and the trees that the machine has."""


class TreePiece(Struct, frozen=True):
    """A part of a pack. `size`: bytes of the whole pack."""

    data: bytes
    size: int


class TreePacks:
    """Packs, each with its readers. A reader reads one pack at a time.

    Arguments:
        write: writes a pack; gets the tree, the trees that the machine has, and the path.
        open_folder: returns the folder of the packs.
    """

    def __init__(
        self, write: Callable[[str, tuple[str, ...], str], None], open_folder: Callable[[], Path]
    ) -> None:
        self._write = write
        self._open_folder = open_folder
        self._packs: dict[PackKey, asyncio.Task[str]] = {}
        self._readers: dict[object, PackKey] = {}
        self._count = 0

    async def read(self, reader: object, key: PackKey, offset: int) -> TreePiece:
        """Return a piece of a pack, which stays until the reader has all of it.

        Arguments:
            reader: stands for a worker process; see `end`.

        Raises WorkspaceError if the pack cannot be written or read.
        """
        self._readers[reader] = key
        if key not in self._packs:
            self._remove_old()
            self._packs[key] = asyncio.create_task(self._write_pack(key))
        try:
            path = await asyncio.shield(self._packs[key])
            piece = await asyncio.to_thread(_read_piece, path, offset)
        except OSError as error:
            self.end(reader)
            reason = error.strerror or str(error)
            raise WorkspaceError(f"files cannot be sent to a machine: {reason}") from error
        except BaseException:
            self.end(reader)
            raise
        if offset + len(piece.data) >= piece.size:
            self.end(reader)
        return piece

    def end(self, reader: object) -> None:
        """Note that a reader needs its pack no more."""
        self._readers.pop(reader, None)
        self._remove_old()

    async def close(self) -> None:
        """Stop all packs that are written. The owner of the folder removes it."""
        tasks = list(self._packs.values())
        self._packs.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write_pack(self, key: PackKey) -> str:
        self._count += 1
        path: Path | None = None
        try:
            path = self._open_folder() / f"tree-{self._count}"
            await asyncio.to_thread(self._write, *key, str(path))
        except BaseException:
            self._packs.pop(key, None)  # a later reader writes it again
            if path is not None:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            raise
        return str(path)

    def _remove_old(self) -> None:
        """Remove the oldest packs that nobody reads, if there are more than may stay."""
        read = set(self._readers.values())
        idle = [key for key, task in self._packs.items() if task.done() and key not in read]
        for key in idle[: max(0, len(self._packs) - _MAX_PACKS)]:
            Path(self._packs.pop(key).result()).unlink(missing_ok=True)


def _read_piece(path: str, offset: int) -> TreePiece:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        return TreePiece(os.pread(descriptor, PIECE_BYTES, offset), size)
    finally:
        os.close(descriptor)
