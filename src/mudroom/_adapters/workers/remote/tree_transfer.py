"""Transfers trees of files between the session and worker processes that cannot see its folder.

The worker process asks for each piece, and sends a piece only once the last was received, so no
process on the way holds more than a few. `TravellingFiles` decides which runs can go to such a
process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...._core.agents import Mode, WorkspaceKind, WorkspaceSpec
from ...._core.events import StoredEvent
from ...._core.ports import FileTrees, SourceFacts, explain_lost_files
from ...._core.runs import Brief, Reason, Work
from ...._core.tools import Effect, ToolCategory
from ...._engine.recorded_conversations import find_workspace, has_effects
from ...._engine.session_context import SessionServices
from ...._platform.scratch_dirs import ScratchDir
from ....errors import MudroomError, WorkspaceError
from .remote_services import SessionLink

_MAX_SENDERS = 2
"""Runs of a worker process that may send their work at once."""

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
    """The session's end: packs of trees that machines ask for, and the work they send.

    `max_bytes` limits one pack of work.
    """

    def __init__(self, services: SessionServices, max_bytes: int) -> None:
        self._services = services
        self._max_bytes = max_bytes
        self._scratch: ScratchDir | None = None
        self._packs = TreePacks(self._write_pack, self._open_folder)
        self._allowed: set[str] = set()

    def allow(self, *trees: str) -> None:
        """Let machines read these trees, and no others, which may have hidden files."""
        self._allowed.update(trees)

    @property
    def trees(self) -> FileTrees:
        """The session's files as trees. Raises WorkspaceError if it has none."""
        trees = self._services.environments.shared.trees
        if trees is None:
            raise WorkspaceError("this session cannot send files to other machines")
        return trees

    async def describe_source(self) -> SourceFacts:
        return await asyncio.to_thread(self.trees.describe_source)

    async def read_tree(
        self, reader: object, tree: str, known: tuple[str, ...], offset: int
    ) -> TreePiece:
        """Read a piece of a tree's pack, which leaves out trees the machine already has.

        `reader` identifies the worker process, which reads one tree at a time. Raises
        WorkspaceError, also if no run begins with the tree.
        """
        if tree not in self._allowed:
            raise WorkspaceError(f"no run of another machine begins with the tree {tree}")
        return await self._packs.read(reader, (tree, known), offset)

    def end_reads(self, reader: object) -> None:
        self._packs.end(reader)

    async def add_work(self, run_id: str, offset: int, data: bytes) -> None:
        path = self._find_work(run_id)
        await asyncio.to_thread(_add_piece, path, offset, data, self._max_bytes)

    async def keep_work(self, run_id: str, work: Work) -> None:
        path = self._find_work(run_id)
        try:
            await asyncio.to_thread(self.trees.add_work, run_id, work, str(path))
        finally:
            path.unlink(missing_ok=True)

    async def mark_merged(self, run_id: str) -> None:
        await asyncio.to_thread(self.trees.mark_merged, run_id)

    async def close(self) -> None:
        await self._packs.close()
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.remove)

    def _write_pack(self, tree: str, known: tuple[str, ...], path: str) -> None:
        self.trees.pack_trees([tree], known, path)

    def _find_work(self, run_id: str) -> Path:
        return self._open_folder() / f"work-{run_id.replace('/', '-')}"

    def _open_folder(self) -> Path:
        if self._scratch is None:
            self._scratch = ScratchDir()
        return Path(self._scratch.path)


def _add_piece(path: Path, offset: int, data: bytes, max_bytes: int) -> None:
    """Append a piece to a file. Raises WorkspaceError if it is not the next, or too much."""
    with path.open("ab" if offset else "wb") as file:
        if file.tell() != offset:
            raise WorkspaceError(f"a piece of work is missing before byte {offset:,}")
        if offset + len(data) > max_bytes:
            raise WorkspaceError(
                f"the work has more than {max_bytes >> 20:,} MiB",
                remedy="Set isolated_mb higher, in a program Isolation(max_mb=...).",
            )
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            raise WorkspaceError(f"work of a run cannot be written: {error.strerror}") from error


class TreeLink:
    """The worker process's end: the port TreeCarrier. Its methods block; threads call them."""

    def __init__(self, link: SessionLink, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._senders = threading.BoundedSemaphore(_MAX_SENDERS)

    def describe_source(self) -> SourceFacts:
        return msgspec.msgpack.decode(self._call(DESCRIBE_SOURCE), type=SourceFacts)

    def fetch(self, tree: str, known: list[str], path: str, stop: threading.Event) -> None:
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
        with self._senders, open(path, "rb") as file:
            while data := file.read(PIECE_BYTES):
                self._call(ADD_WORK, run_id, file.tell() - len(data), data)
            self._call(KEEP_WORK, run_id, work)

    def mark_merged(self, run_id: str) -> None:
        self._call(MARK_MERGED, run_id)

    def _call(self, name: str, *arguments: object) -> bytes:
        call = self._link.call(name, *arguments)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


def list_targets(
    transfers: TreeTransfers, owns: Callable[[str], bool], reader: object
) -> dict[str, Any]:
    """List a worker process's calls, by name.

    `reader` identifies the process; `owns` tells whether it executes a run or one above it.
    """

    def check(call: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def checked(run_id: str, *arguments: Any) -> None:
            if not owns(run_id):
                raise WorkspaceError(f"run {run_id} is not one of this worker process")
            await call(run_id, *arguments)

        return checked

    return {
        DESCRIBE_SOURCE: transfers.describe_source,
        READ_TREE: partial(transfers.read_tree, reader),
        ADD_WORK: check(transfers.add_work),
        KEEP_WORK: check(transfers.keep_work),
        MARK_MERGED: check(transfers.mark_merged),
    }


PIECE_BYTES = 256 << 10
"""Maximum bytes of a piece."""

_MAX_PACKS = 4
"""Packs to keep for other machines that ask for the same tree."""

PackKey = tuple[str, tuple[str, ...]]
"""A tree, and the trees the machine already has."""


class TreePiece(Struct, frozen=True):
    """A part of a pack. `size`: bytes of the whole pack."""

    data: bytes
    size: int


class TreePacks:
    """Packs, each with its readers. A reader reads one pack at a time."""

    def __init__(
        self, write: Callable[[str, tuple[str, ...], str], None], open_folder: Callable[[], Path]
    ) -> None:
        self._write = write
        self._open_folder = open_folder
        self._packs: dict[PackKey, asyncio.Task[str]] = {}
        self._readers: dict[object, PackKey] = {}
        self._count = 0

    async def read(self, reader: object, key: PackKey, offset: int) -> TreePiece:
        """Read a piece of a pack, which stays until the reader has all of it or calls `end`.

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
        self._readers.pop(reader, None)
        self._remove_old()

    async def close(self) -> None:
        """Stop writing packs. The folder's owner removes it."""
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
        """Remove the oldest packs without readers, if there are too many."""
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


NEEDS_FOLDER = (
    "no worker process sees the folder of the session, and this run needs it: {reason}. Give it an "
    "isolated workspace, let it only read (permission mode plan, or no tool that writes or runs "
    "commands), or mount the folder and the state folder on all nodes"
)

UNSEEN_FOLDER = (
    "the machine %s does not see the folder of the session: children that only read, and isolated "
    "ones, get files of their own there; others cannot work there"
)

log = logging.getLogger("mudroom")

_KEPT_TREES = 8
"""Trees for which the session remembers which files may be sent."""


class FilesNotReadyError(Exception):
    """A run cannot have its files and ends with `reason`. The text explains why."""

    def __init__(self, error: str, reason: Reason = Reason.ERROR) -> None:
        super().__init__(error)
        self.reason = reason


class TravellingFiles:
    """Files of the session's folder, for runs on machines that cannot see it.

    Agents with their own MCP servers work in the folder. `is_hidden` tells, by absolute path, which
    files are not sent; None if all are.
    """

    def __init__(
        self,
        services: SessionServices,
        server_agents: Collection[str],
        transfers: TreeTransfers,
        is_hidden: Callable[[str], bool] | None = None,
        *,
        can_send: bool = True,
    ) -> None:
        self.can_send = can_send
        self._services = services
        self._server_agents = server_agents
        self.transfers = transfers
        self._is_hidden = is_hidden
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[str] | None = None
        self._visible: dict[str, str] = {}  # a tree -> the part that may be sent
        self._announced: set[str] = set()

    def announce(self, host: str) -> None:
        """Tell the user once that a machine cannot see the folder."""
        if host not in self._announced:
            self._announced.add(host)
            log.warning(UNSEEN_FOLDER, host)

    def explain_need(self, brief: Brief, past: Sequence[StoredEvent]) -> str:
        """Explain why a run with these events needs the session's own folder; "" if it does not."""
        if brief.board_task or self._has_category(brief, ToolCategory.BOARD):
            return "it uses the task board, which is a file"
        if brief.agent.name in self._server_agents:
            return "its agent has an MCP server of its own"
        spec = _find_spec(brief, past)
        if spec.kind is WorkspaceKind.ISOLATED:
            return self._explain_isolated(spec, past)
        if spec.kind is WorkspaceKind.COPY or spec.is_snapshot:
            return ""
        if spec.kind is not WorkspaceKind.SHARED:
            return "it shares the files of another run"
        return "" if self._only_reads(brief) else "it may change files, and shares them"

    def find_machine(self, brief: Brief, past: Sequence[StoredEvent]) -> str:
        """Find the machine with files that a run may have changed; "" if there is none."""
        spec = _find_spec(brief, past)
        if spec.kind is not WorkspaceKind.ISOLATED:
            return ""
        return spec.machine if has_effects(past, self._services.toolbox) else ""

    async def prepare(self, brief: Brief, past: Sequence[StoredEvent], host: str) -> Brief:
        """Give the brief of a run on a machine the tree of files to begin with.

        A run that has begun keeps its tree. If it has changed files, it also needs their machine:
        another may have files of an earlier attempt.

        Raises FilesNotReadyError.
        """
        spec = _find_spec(brief, past)
        if self.find_machine(brief, past) not in ("", host):
            raise FilesNotReadyError(explain_lost_files(spec), Reason.LOST)
        try:
            base, tree = await self._choose_trees(spec)
        except MudroomError as error:
            raise FilesNotReadyError(str(error)) from error
        self.transfers.allow(base, tree)
        kind = WorkspaceKind.FOLDER if spec.kind is WorkspaceKind.SHARED else spec.kind
        root = spec.root or self._services.environments.shared.workspace.root
        sent = replace(spec, kind=kind, root=root, base=base, tree=tree, machine=host)
        return replace(brief, workspace=sent)

    async def _choose_trees(self, spec: WorkspaceSpec) -> tuple[str, str]:
        if not spec.tree:
            tree = await self._store_files()
            return tree, tree
        # The tree of a merge with conflicts has all files of the session's folder.
        return (
            await asyncio.to_thread(self._leave_hidden_out, spec.base or spec.tree),
            await asyncio.to_thread(self._leave_hidden_out, spec.tree),
        )

    async def _store_files(self) -> str:
        """Store the present files; return their tree. Waiting runs share one pass."""
        if self._next is None:
            self._next = asyncio.create_task(self._store_next())
        return await asyncio.shield(self._next)

    async def _store_next(self) -> str:
        async with self._lock:
            self._next = None  # a run arriving from now on may follow a change
            return await asyncio.to_thread(self._store_visible)

    def _store_visible(self) -> str:
        return self._leave_hidden_out(self.transfers.trees.store_files())

    def _leave_hidden_out(self, tree: str) -> str:
        is_hidden = self._is_hidden
        if is_hidden is None:
            return tree
        visible = self._visible.get(tree)
        if visible is None:
            root = self._services.environments.shared.workspace.root
            trees = self.transfers.trees
            visible = trees.leave_out(tree, lambda path: is_hidden(os.path.join(root, path)))
            self._visible = {tree: visible, **dict(list(self._visible.items())[:_KEPT_TREES])}
        return visible

    def _explain_isolated(self, spec: WorkspaceSpec, past: Sequence[StoredEvent]) -> str:
        if spec.parent:
            return "it begins with the files of another run"
        began_here = bool(past) and not spec.machine
        if began_here and has_effects(past, self._services.toolbox):
            return "it has changed files of its workspace there"
        return ""

    def _only_reads(self, brief: Brief) -> bool:
        toolbox = self._services.toolbox
        tools = [toolbox[name] for name in brief.tools if name in toolbox]
        # A tool imported there may do anything with the workspace.
        if any(tool.reference and tool.effect is not Effect.PURE for tool in tools):
            return False
        writes = any(tool.category in (ToolCategory.WRITE, ToolCategory.RUN) for tool in tools)
        return brief.mode is Mode.PLAN or not writes

    def _has_category(self, brief: Brief, category: ToolCategory) -> bool:
        toolbox = self._services.toolbox
        return any(toolbox[name].category is category for name in brief.tools if name in toolbox)


def _find_spec(brief: Brief, past: Sequence[StoredEvent]) -> WorkspaceSpec:
    """Find a run's recorded workspace, else its brief's."""
    return find_workspace(past) or brief.workspace
