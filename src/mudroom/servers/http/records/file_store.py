"""FileStore: the content of files, in a folder beside the state file."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ...._platform.private_files import make_private_file, make_private_folder

_CHUNK_BYTES = 64 << 10
_ORPHAN_SECONDS = 86_400.0
"""Age of files that no record names, such as of a crash, before they are removed."""


class FileStore:
    """The content of all files. `home`: mudroom's state folder."""

    def __init__(self, home: str) -> None:
        self._folder = Path(home, "serve-files")

    def make_id(self) -> str:
        """Return an id for a new file."""
        return f"file-{uuid.uuid4().hex}"

    def get_path(self, id: str) -> Path:
        """Return the path of a file."""
        return self._folder / id

    def get_results_path(self, session: str) -> Path:
        """Return the path of all results of the batch of a session."""
        make_private_folder(self._folder)
        return self._folder / f"{session}.results"

    async def write(self, id: str, chunks: AsyncIterable[bytes]) -> int:
        """Write a file, durable when this returns; return its bytes. Raises OSError."""
        await asyncio.to_thread(make_private_folder, self._folder)
        new = self._folder / f".{id}"
        await asyncio.to_thread(make_private_file, new)
        size = 0
        try:
            with new.open("wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(_make_durable, file)
            os.replace(new, self.get_path(id))
            await asyncio.to_thread(_make_names_durable, self._folder)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        return size

    async def read(self, path: Path) -> AsyncIterator[bytes]:
        """Yield the content of a file; nothing if there is none."""
        try:
            file = await asyncio.to_thread(path.open, "rb")
        except FileNotFoundError:
            return
        with file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield chunk

    def remove(self, id: str) -> None:
        """Remove a file."""
        self.get_path(id).unlink(missing_ok=True)

    def remove_results(self, session: str) -> None:
        """Remove all results of the batch of a session."""
        self.get_results_path(session).unlink(missing_ok=True)

    def remove_orphans(self, known: set[str]) -> None:
        """Remove old files that no record names. `known`: ids of all files."""
        try:
            entries = list(os.scandir(self._folder))
        except FileNotFoundError:
            return
        oldest = time.time() - _ORPHAN_SECONDS
        for entry in entries:
            if entry.name in known or entry.name.endswith(".results"):
                continue
            with suppress(FileNotFoundError):  # another server process has removed it
                if entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)


def _make_durable(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _make_names_durable(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
