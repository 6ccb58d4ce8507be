"""Conflicts that a run has to resolve: which of them are open, and what a decision makes of them.

Whether a run resolved a conflict is read from trees, not from what the run says: it did if its
folder differs from what it began with at one of the paths, and no conflict mark is left there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ...._core.agents import FileConflict
from ...._core.ports import MergeConflict
from ...._core.runs import Work
from ...._platform.paths import path_from_text, path_to_text
from .conflict_marks import is_marked
from .git_store import GitStore
from .trees import TreeEntry

Entries = dict[str, TreeEntry]


def find_open(
    store: GitStore, conflicts: Sequence[FileConflict], start: str, tree: str
) -> tuple[FileConflict, ...]:
    """Return the conflicts that a run has not resolved.

    Arguments:
        conflicts: those with which it began.
        start: id of the tree with which it began. tree: id of the present one.
    """
    if not conflicts:
        return ()
    before, after = store.list_entries(start), store.list_entries(tree)
    return tuple(each for each in conflicts if _is_open(store, each, before, after))


def _is_open(store: GitStore, conflict: FileConflict, before: Entries, after: Entries) -> bool:
    paths = decode_paths(conflict.paths)
    present = select_entries(after, paths)
    if present == select_entries(before, paths):
        return True
    return any(is_marked(store, path, entry) for path, entry in present.items())


def decode_paths(paths: Iterable[str]) -> list[str]:
    """Return paths of the record as the store has them."""
    return [path_from_text(path) for path in paths]


def select_entries(entries: Entries, paths: Iterable[str]) -> Entries:
    """Return the files at some paths, and those below them."""
    chosen = set(paths)
    folders = tuple(f"{path}/" for path in chosen)
    return {
        path: entry for path, entry in entries.items() if path in chosen or path.startswith(folders)
    }


def take_side(entries: Entries, side: Entries, paths: Sequence[str]) -> None:
    """Give the paths of a conflict the version of one side, in place."""
    for path in select_entries(entries, paths):
        del entries[path]
    entries.update(select_entries(side, paths))


def resolve(store: GitStore, work: Work, sides: Mapping[str, str]) -> Work:
    """Return work in which open conflicts are resolved.

    Arguments:
        sides: see `Isolation.resolve`. Conflicts that it does not name stay open.
    """
    named = [(each, _find_side(each, sides)) for each in work.conflicts]
    if not any(side for _, side in named):
        return work
    entries = store.list_entries(work.tree)
    versions = {
        "mine": store.list_entries(work.own or work.tree),
        "theirs": store.list_entries(work.base),
        "new": dict(entries),
    }
    for conflict, side in named:
        if side:
            take_side(entries, versions[side], decode_paths(conflict.paths))
    tree = store.write_tree(entries)
    changes = store.list_changes(work.base, tree)
    return replace(
        work,
        tree=tree,
        files=tuple(path_to_text(change.path) for change in changes),
        conflicts=tuple(conflict for conflict, side in named if not side),
    )


def _find_side(conflict: FileConflict, sides: Mapping[str, str]) -> str:
    return next((sides[path] for path in conflict.paths if path in sides), "")


def make_own_tree(store: GitStore, work: Work) -> str:
    """Return the id of a tree in which open conflicts have the child's own version."""
    mine = {each.path: "mine" for each in work.conflicts}
    return resolve(store, work, mine).tree


def add_open(
    store: GitStore, work: Work, ours: str, tree: str, conflicts: Iterable[MergeConflict]
) -> list[MergeConflict]:
    """Return the conflicts of a merge with those that the work brings.

    Arguments:
        ours: id of the tree with the parent's files. tree: id of the merged tree.
        conflicts: of the merge; their paths are text. A conflict that the work brings replaces
            that of the merge, which knows a half resolved file as the version of the child.
    """
    found = {each.path: each for each in conflicts}
    if work.conflicts:
        parent, merged = store.list_entries(ours), store.list_entries(tree)
        child = store.list_entries(work.own or work.tree)
        for each in work.conflicts:
            path = path_from_text(each.path)
            found[each.path] = MergeConflict(
                each.path,
                each.kind,
                each.base,
                _get_id(parent, path),
                _get_id(child, path),
                _get_id(merged, path),
                each.paths,
            )
    return list(found.values())


def _get_id(entries: Entries, path: str) -> str:
    entry = entries.get(path)
    return entry.id if entry else ""
