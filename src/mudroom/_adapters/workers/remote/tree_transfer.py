"""Trees of files between the session and worker processes that do not see its folder.

The worker process asks for each piece, and sends the next one when the last one has been received:
no process on the way holds more than a few pieces.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ...._core.ports import Isolation, SourceFacts
from ...._core.runs import Work
from ...._engine.session_context import SessionServices
from ...._platform.scratch_dirs import ScratchDir
from ....errors import WorkspaceError
from .remote_services import SessionLink

_MAX_SENDERS = 2
"""Runs of a worker process that send their work at once."""

DESCRIBE_SOURCE = "describe_source"
READ_TREE = "read_tree"
ADD_WORK = "add_work"
KEEP_WORK = "keep_work"
MARK_MERGED = "mark_merged"

TREE_ARGUMENTS: dict[str, Any] = {
    DESCRIBE_SOURCE: tuple[()],
    READ_TREE: tuple[str, tuple[str, ...], int],
    ADD_WORK: tuple[str, int, bytes],
    KEEP_WORK: tuple[str, Work],
    MARK_MERGED: tuple[str],
}


class TreeTransfers:
    """The session's end: packs of trees that machines ask for, and the work that they send.

    Arguments:
        max_bytes: maximum size of one pack of work.
    """

    def __init__(self, services: SessionServices, max_bytes: int) -> None:
        self._services = services
        self._max_bytes = max_bytes
        self._scratch: ScratchDir | None = None
        self._packs = TreePacks(self._write_pack, self._open_folder)
        self._allowed: set[str] = set()

    def allow(self, *trees: str) -> None:
        """Let machines read trees. They can read no others: those may have hidden files."""
        self._allowed.update(trees)

    @property
    def isolation(self) -> Isolation:
        """The files of the session as trees. Raises WorkspaceError if it has none."""
        isolation = self._services.environments.shared.isolation
        if isolation is None:
            raise WorkspaceError("this session cannot send files to other machines")
        return isolation

    async def describe_source(self) -> SourceFacts:
        """Return the facts about the folder of the session."""
        return await asyncio.to_thread(self.isolation.describe_source)

    async def read_tree(
        self, reader: object, tree: str, known: tuple[str, ...], offset: int
    ) -> TreePiece:
        """Return a piece of the pack of a tree.

        Arguments:
            reader: stands for the worker process, which reads one tree at a time.
            known: trees that the machine has. offset: of the piece in the pack.

        Raises WorkspaceError, also if no run begins with the tree.
        """
        if tree not in self._allowed:
            raise WorkspaceError(f"no run of another machine begins with the tree {tree}")
        return await self._packs.read(reader, (tree, known), offset)

    def end_reads(self, reader: object) -> None:
        """Note that a worker process has ended."""
        self._packs.end(reader)

    async def add_work(self, run_id: str, offset: int, data: bytes) -> None:
        """Take a piece of the pack of the work of a run."""
        path = self._find_work(run_id)
        await asyncio.to_thread(_add_piece, path, offset, data, self._max_bytes)

    async def keep_work(self, run_id: str, work: Work) -> None:
        """Store the work of a run whose pack is complete. Raises WorkspaceError."""
        path = self._find_work(run_id)
        try:
            await asyncio.to_thread(self.isolation.add_work, run_id, work, str(path))
        finally:
            path.unlink(missing_ok=True)

    async def mark_merged(self, run_id: str) -> None:
        """Record that the work of a run is merged."""
        await asyncio.to_thread(self.isolation.mark_merged, run_id)

    async def close(self) -> None:
        """Remove all packs."""
        await self._packs.close()
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.remove)

    def _write_pack(self, tree: str, known: tuple[str, ...], path: str) -> None:
        self.isolation.pack_trees([tree], known, path)

    def _find_work(self, run_id: str) -> Path:
        return self._open_folder() / f"work-{run_id.replace('/', '-')}"

    def _open_folder(self) -> Path:
        if self._scratch is None:
            self._scratch = ScratchDir()
        return Path(self._scratch.path)


def _add_piece(path: Path, offset: int, data: bytes, max_bytes: int) -> None:
    """Append a piece to a file. Raises WorkspaceError if it is not the next one, or too much."""
    with path.open("ab" if offset else "wb") as file:
        if file.tell() != offset:
            raise WorkspaceError(f"a piece of work is missing before byte {offset:,}")
        if offset + len(data) > max_bytes:
            raise WorkspaceError(
                f"the work has more than {max_bytes >> 20:,} MiB",
                remedy="Set isolated_mb higher.",
            )
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            raise WorkspaceError(f"work of a run cannot be written: {error.strerror}") from error


class TreeLink:
    """The worker process's end: the port TreeCarrier. Its methods block; threads call them.

    Arguments:
        loop: the event loop of the link.
    """

    def __init__(self, link: SessionLink, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._senders = threading.BoundedSemaphore(_MAX_SENDERS)

    def describe_source(self) -> SourceFacts:
        """Return the facts about the folder of the session."""
        return msgspec.msgpack.decode(self._call(DESCRIBE_SOURCE), type=SourceFacts)

    def fetch(self, tree: str, known: list[str], path: str, stop: threading.Event) -> None:
        """Write a file with the objects of a tree of the session."""
        with open(path, "wb") as file:
            while True:
                reply = self._call(READ_TREE, tree, known, file.tell())
                piece = msgspec.msgpack.decode(reply, type=TreePiece)
                if stop.is_set():
                    raise WorkspaceError("the run was stopped while it waited for its files")
                file.write(piece.data)
                if file.tell() >= piece.size:
                    return
                if not piece.data:
                    raise WorkspaceError(f"the pack of the tree {tree} has no end")

    def send(self, run_id: str, work: Work, path: str) -> None:
        """Have the session store the work of a run."""
        with self._senders, open(path, "rb") as file:
            while data := file.read(PIECE_BYTES):
                self._call(ADD_WORK, run_id, file.tell() - len(data), data)
            self._call(KEEP_WORK, run_id, work)

    def mark_merged(self, run_id: str) -> None:
        """Tell the session that the work of a run is merged."""
        self._call(MARK_MERGED, run_id)

    def _call(self, name: str, *arguments: object) -> bytes:
        """Call a service of the session from a thread."""
        call = self._link.call(name, *arguments)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


def list_targets(
    transfers: TreeTransfers, owns: Callable[[str], bool], reader: object
) -> dict[str, Any]:
    """Return the calls of one worker process, by name.

    Arguments:
        reader: stands for the process; see `TreeTransfers.read_tree`.
        owns: tells whether the process executes a run, or one above it.
    """

    def check(run_id: str) -> None:
        if not owns(run_id):
            raise WorkspaceError(f"run {run_id} is not one of this worker process")

    async def add_work(run_id: str, offset: int, data: bytes) -> None:
        check(run_id)
        await transfers.add_work(run_id, offset, data)

    async def keep_work(run_id: str, work: Work) -> None:
        check(run_id)
        await transfers.keep_work(run_id, work)

    async def mark_merged(run_id: str) -> None:
        check(run_id)
        await transfers.mark_merged(run_id)

    return {
        DESCRIBE_SOURCE: transfers.describe_source,
        READ_TREE: partial(transfers.read_tree, reader),
        ADD_WORK: add_work,
        KEEP_WORK: keep_work,
        MARK_MERGED: mark_merged,
    }


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
        """Remove the oldest packs without readers, if there are more than may stay."""
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
