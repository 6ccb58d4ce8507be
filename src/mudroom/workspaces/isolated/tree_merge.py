"""Three-way merge of trees, for a machine without `git merge-tree`. It follows no renames."""

from __future__ import annotations

from msgspec import Struct

from ..._core.ports import MergeConflict
from ..._platform.binary_files import is_binary
from .line_merge import merge_lines
from .store import TreeStore
from .trees import FILE_TYPE, REGULAR, TreeEntry, list_parents


class MergedTree(Struct, frozen=True):
    """The result of a merge of two trees; with conflicts its files have marks."""

    tree: str
    conflicts: tuple[MergeConflict, ...] = ()


def merge_entries(store: TreeStore, base: str, ours: str, theirs: str) -> MergedTree:
    """Merge the changes from `base` to `theirs` into `ours`, file by file."""
    sides = [store.list_entries(tree) for tree in (base, ours, theirs)]
    merged = dict(sides[1])
    conflicts: list[MergeConflict] = []
    for change in store.list_changes(base, theirs):
        old, mine, other = (side.get(change.path) for side in sides)
        entry, conflict = _merge_file(store, change.path, old, mine, other)
        if conflict:
            conflicts.append(conflict)
        if entry:
            merged[change.path] = entry
        else:
            merged.pop(change.path, None)
    for path in sorted(list_parents(merged) & merged.keys()):
        old, mine, other = (side.get(path) for side in sides)
        conflicts.append(_make_conflict(path, "file-folder", old, mine, other))
        del merged[path]
    return MergedTree(store.write_tree(merged), tuple(conflicts))


def _merge_file(
    store: TreeStore,
    path: str,
    base: TreeEntry | None,
    ours: TreeEntry | None,
    theirs: TreeEntry | None,
) -> tuple[TreeEntry | None, MergeConflict | None]:
    """Return the merged file, and the conflict if there is one."""
    if ours in (base, theirs):
        return theirs, None
    if ours is None or theirs is None:
        return ours or theirs, _make_conflict(path, "modified-deleted", base, ours, theirs)
    if not _are_files(base, ours, theirs):
        return ours, _make_conflict(path, "type", base, ours, theirs)
    mode = theirs.mode if base and ours.mode == base.mode else ours.mode
    if ours.id == theirs.id or (base and theirs.id == base.id):
        return TreeEntry(mode, ours.id), None
    if base and ours.id == base.id:
        return TreeEntry(mode, theirs.id), None
    texts = [store.read(entry.id) if entry else b"" for entry in (base, ours, theirs)]
    if is_binary(*texts):
        return ours, _make_conflict(path, "binary", base, ours, theirs)
    merge = merge_lines(*texts)
    entry = TreeEntry(mode, store.write(merge.text))
    if not merge.has_conflicts:
        return entry, None
    kind = "both-modified" if base else "both-added"
    return entry, _make_conflict(path, kind, base, ours, theirs, entry.id)


def _are_files(*entries: TreeEntry | None) -> bool:
    return all(entry is None or entry.mode & FILE_TYPE == REGULAR for entry in entries)


def _make_conflict(
    path: str,
    kind: str,
    base: TreeEntry | None,
    ours: TreeEntry | None,
    theirs: TreeEntry | None,
    text: str = "",
) -> MergeConflict:
    sides = [entry.id if entry else "" for entry in (base, ours, theirs)]
    return MergeConflict(path, kind, sides[0], sides[1], sides[2], text)
