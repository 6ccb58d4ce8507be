"""Work done in isolated workspaces, for the viewer: diffs, and the sides of conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from .._core.events import RunFinished, WorkMerged, decode_event
from .._core.runs import Work
from .._core.tools import PreviewLine
from .._platform.regular_files import is_binary
from .._projections.differences import diff_texts
from ..errors import UsageError, WorkspaceError

if TYPE_CHECKING:
    from .._adapters.workspaces.isolated.git_store import GitStore
    from .._adapters.workspaces.isolated.store import FileChange

# Changed files to compare; the rest is only counted.
MAX_FILES = 500

# Bytes; larger contents are neither compared nor shown.
MAX_BYTES = 1 << 20


class WorkQuery(Struct, frozen=True):
    """Ids of the trees at the start and the end of a run, taken from its events.

    After a conflict, `ours` is the tree of the parent's files, and `both` has both sides between
    conflict marks.
    """

    base: str
    tree: str
    ours: str = ""
    both: str = ""
    conflicts: tuple[str, ...] = ()


class WorkQueries:
    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._conflicts: dict[str, WorkMerged] = {}

    def observe(self, body: bytes) -> None:
        """Take in the next event, as JSON."""
        # A quick test, which spares decoding nearly all events.
        if b'"run_finished"' in body or b'"work_merged"' in body:
            event = decode_event(body)
            if isinstance(event, RunFinished) and event.report.work:
                self._works[event.run] = event.report.work
            elif isinstance(event, WorkMerged) and event.state == "conflict":
                self._conflicts[event.child] = event

    def list_all(self) -> Iterator[tuple[str, WorkQuery]]:
        for run, work in self._works.items():
            query = WorkQuery(work.base, work.tree)
            if conflict := self._conflicts.get(run):
                paths = tuple(path for path, _ in conflict.conflicts)
                query = WorkQuery(work.base, work.tree, conflict.base, conflict.tree, paths)
            yield run, query


class ChangedFile(Struct, frozen=True):
    """A file changed by a run: "added", "modified", "deleted" or "type".

    The diff is empty if the content is binary or too large.
    """

    path: str
    change: str
    lines: list[PreviewLine] = []
    note: str = ""


class ConflictSides(Struct, frozen=True):
    """The contents of a conflicting file; None for no file or a binary one."""

    path: str
    base: str | None
    ours: str | None
    theirs: str | None
    both: str | None


class WorkPage(Struct, frozen=True):
    """The changes made by a run, with the number of files not listed."""

    files: list[ChangedFile] = []
    conflicts: list[ConflictSides] = []
    omitted: int = 0
    error: str = ""


def read_work(home: str, session: str, query: WorkQuery) -> WorkPage:
    """Read the changes made by a run; this blocks.

    Raises UsageError if the query does not consist of tree ids.
    """
    from .._adapters.workspaces.isolated.kept_work import open_kept  # slow to import

    trees = [query.base, query.tree, query.ours, query.both]
    if not (query.base and query.tree and all(map(_is_tree_id, trees))):
        raise UsageError("these are not ids of trees", where=", ".join(trees))
    try:
        store = open_kept(home, session).store
        changes = store.list_changes(query.base, query.tree)
        files = [_compare(store, change) for change in changes[:MAX_FILES]]
        conflicts = _read_sides(store, query)
    except WorkspaceError as error:
        return WorkPage(error=f"The files of this run cannot be read: {error}")
    return WorkPage(files, conflicts, max(0, len(changes) - MAX_FILES))


def _is_tree_id(text: str) -> bool:
    return not text or (len(text) in (40, 64) and all(c in "0123456789abcdef" for c in text))


def _compare(store: GitStore, change: FileChange) -> ChangedFile:
    old, new = _read_text(store, change.before), _read_text(store, change.after)
    if old is None or new is None:
        return ChangedFile(change.path, change.status, note="not text, or too large to compare")
    return ChangedFile(change.path, change.status, diff_texts(old, new))


def _read_sides(store: GitStore, query: WorkQuery) -> list[ConflictSides]:
    trees = (query.base, query.ours, query.tree, query.both)
    sides = [_read_files(store, tree, query.conflicts) if tree else {} for tree in trees]
    return [ConflictSides(path, *(side.get(path) for side in sides)) for path in query.conflicts]


def _read_files(store: GitStore, tree: str, paths: Sequence[str]) -> dict[str, str | None]:
    entries = store.list_entries(tree, paths)
    return {path: _read_text(store, entry.id) for path, entry in entries.items()}


def _read_text(store: GitStore, content: str) -> str | None:
    """Read content as text, "" for no file, None if it is binary or too large."""
    data = store.read(content) if content else b""
    if len(data) > MAX_BYTES or is_binary(data):
        return None
    return data.decode("utf-8", "replace")
