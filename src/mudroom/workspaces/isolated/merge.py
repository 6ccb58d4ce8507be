"""The three-way merge of two trees."""

from __future__ import annotations

import os

from ..._core.ports import MergeChoice, MergeConflict
from ..._platform.path_text import path_to_text
from .conflict_marks import name_sides
from .git import can_merge_trees
from .git_store import GitStore
from .store import TreeStore
from .tree_merge import MergedTree, merge_entries

_KINDS = {
    "CONFLICT (contents)": "both-modified",
    "CONFLICT (binary)": "binary",
    "CONFLICT (modify/delete)": "modified-deleted",
    "CONFLICT (file/directory)": "file-folder",
    "CONFLICT (directory/file)": "file-folder",
    "CONFLICT (distinct modes)": "type",
    "CONFLICT (distinct types)": "type",
}
"""What git says of a conflict -> its kind. All kinds of renames are "renamed"."""


def merge_trees(store: TreeStore, base: str, ours: str, theirs: str) -> MergedTree:
    """Merge the changes from `base` to `theirs` into `ours`. Nothing but objects is written."""
    if base in (ours, theirs) or ours == theirs:
        return MergedTree(theirs if ours == base else ours)
    if isinstance(store, GitStore) and can_merge_trees(store.source):
        return _merge_with_git(store, base, ours, theirs)
    return merge_entries(store, base, ours, theirs)


def _merge_with_git(store: GitStore, base: str, ours: str, theirs: str) -> MergedTree:
    """Merge with `git merge-tree`, which follows renames.

    Made-up commits give it the base, because `--merge-base` needs git 2.40.
    """
    root = store.make_commit(base)
    sides = (store.make_commit(ours, root), store.make_commit(theirs, root))
    output = store.git.run("merge-tree", "--write-tree", "-z", "--messages", *sides, codes=(0, 1))
    parts = os.fsdecode(output).split("\0")
    tree = parts.pop(0)
    if "" not in parts:
        return MergedTree(tree)
    end = parts.index("")
    stages = _read_stages(parts[:end])
    if not stages:
        return MergedTree(tree)
    kinds = _read_kinds(parts[end + 1 :])
    tree, texts = name_sides(store, tree, stages, (root, *sides))
    conflicts = [
        MergeConflict(path, _choose_kind(kinds.get(path, ""), ids), *ids, texts.get(path, ""))
        for path, ids in stages.items()
    ]
    return MergedTree(tree, tuple(conflicts))


def choose_side(
    store: TreeStore, merge: MergedTree, ours: str, theirs: str, choice: MergeChoice
) -> MergedTree:
    """Return a merge in which files with conflicts have the version of one side.

    A file that has the path of a folder stays a conflict.
    """
    chosen = store.list_entries(ours if choice.side == "parent" else theirs)
    entries = store.list_entries(merge.tree)
    left: list[MergeConflict] = []
    for conflict in merge.conflicts:
        if conflict.kind == "file-folder" or not choice.covers(path_to_text(conflict.path)):
            left.append(conflict)
        elif conflict.path in chosen:
            entries[conflict.path] = chosen[conflict.path]
        else:
            entries.pop(conflict.path, None)
    return MergedTree(store.write_tree(entries), tuple(left))


def _read_stages(entries: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return the ids of base, ours and theirs by path: "100644 <id> <stage>\t<path>"."""
    stages: dict[str, list[str]] = {}
    for entry in entries:
        facts, _, path = entry.partition("\t")
        _, object_id, stage = facts.split(" ")
        stages.setdefault(path, ["", "", ""])[int(stage) - 1] = object_id
    return {path: (ids[0], ids[1], ids[2]) for path, ids in stages.items()}


def _read_kinds(parts: list[str]) -> dict[str, str]:
    """Return git's name of the conflict by path: "<count>", the paths, the name, the message."""
    kinds: dict[str, str] = {}
    place = 0
    while place < len(parts) and parts[place].isdigit():
        end = place + 1 + int(parts[place])
        name = parts[end]
        if name.startswith("CONFLICT"):
            for path in parts[place + 1 : end]:
                kinds.setdefault(path, name)  # a general name may follow: binary, then contents
        place = end + 2
    return kinds


def _choose_kind(name: str, sides: tuple[str, str, str]) -> str:
    if "rename" in name:
        return "renamed"
    kind = _KINDS.get(name, "both-modified")
    return "both-added" if kind == "both-modified" and not sides[0] else kind
