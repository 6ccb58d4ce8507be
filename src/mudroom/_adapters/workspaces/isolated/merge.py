"""The three-way merge of two trees, and what of its result may not be written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from ...._core.ports import MergeChoice, MergeConflict
from ...._platform.paths import path_to_text
from ...._platform.protected_names import find_protected_component
from .conflict_marks import find_marked, name_sides
from .git_store import GitStore
from .open_conflicts import take_side
from .trees import FileChange, is_link

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


class MergedTree(Struct, frozen=True):
    """The result of a merge of two trees; files in conflict have marks."""

    tree: str
    conflicts: tuple[MergeConflict, ...] = ()


def merge_trees(store: GitStore, base: str, ours: str, theirs: str) -> MergedTree:
    """Merge the changes from `base` to `theirs` into `ours`. Only objects are written."""
    if base in (ours, theirs) or ours == theirs:
        return MergedTree(theirs if ours == base else ours)
    # Made-up commits give merge-tree the base: its option `--merge-base` needs git 2.40.
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
    messages = _read_conflicts(parts[end + 1 :])
    kinds = _choose_names(messages)
    groups = _join_paths([*messages, *((path,) for path in stages)])
    tree, texts = name_sides(store, tree, stages, (root, *sides))
    conflicts = [
        MergeConflict(
            path, _choose_kind(kinds.get(path, ""), ids), *ids, texts.get(path, ""), groups[path]
        )
        for path, ids in stages.items()
    ]
    return MergedTree(tree, tuple(conflicts))


def choose_side(
    store: GitStore, merge: MergedTree, ours: str, theirs: str, choice: MergeChoice
) -> MergedTree:
    """Return a merge in which files with conflicts have the version of one side."""
    chosen = store.list_entries(ours if choice.side == "parent" else theirs)
    entries = store.list_entries(merge.tree)
    left: list[MergeConflict] = []
    for conflict in merge.conflicts:
        paths = conflict.paths or (conflict.path,)
        if any(choice.covers(path_to_text(path)) for path in paths):
            take_side(entries, chosen, paths)
        else:
            left.append(conflict)
    return MergedTree(store.write_tree(entries), tuple(left))


def _read_stages(entries: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return the ids of base, ours and theirs by path: "100644 <id> <stage>\t<path>"."""
    stages: dict[str, list[str]] = {}
    for entry in entries:
        facts, _, path = entry.partition("\t")
        _, object_id, stage = facts.split(" ")
        stages.setdefault(path, ["", "", ""])[int(stage) - 1] = object_id
    return {path: (ids[0], ids[1], ids[2]) for path, ids in stages.items()}


def _read_conflicts(parts: list[str]) -> dict[tuple[str, ...], str]:
    """Return git's name of each conflict by its paths: "<count>", the paths, the name, a text."""
    conflicts: dict[tuple[str, ...], str] = {}
    place = 0
    while place < len(parts) and parts[place].isdigit():
        end = place + 1 + int(parts[place])
        name = parts[end]
        if name.startswith("CONFLICT"):
            # A general name may follow: binary, then contents.
            conflicts.setdefault(tuple(parts[place + 1 : end]), name)
        place = end + 2
    return conflicts


def _choose_names(conflicts: Mapping[tuple[str, ...], str]) -> dict[str, str]:
    """Return the first name of a conflict by path."""
    names: dict[str, str] = {}
    for paths, name in conflicts.items():
        for path in paths:
            names.setdefault(path, name)
    return names


def _join_paths(groups: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return all paths of the conflict that a path belongs to: groups that share one are one."""
    joined: dict[str, list[str]] = {}
    for group in groups:
        paths = list(group)
        for path in group:
            paths += joined.get(path, [])
        paths = list(dict.fromkeys(paths))
        joined.update(dict.fromkeys(paths, paths))
    return {path: tuple(sorted(paths)) for path, paths in joined.items()}


def _choose_kind(name: str, sides: tuple[str, str, str]) -> str:
    if "rename" in name:
        return "renamed"
    kind = _KINDS.get(name, "both-modified")
    return "both-added" if kind == "both-modified" and not sides[0] else kind


def find_obstacles(
    store: GitStore, changes: Sequence[FileChange]
) -> Iterator[tuple[FileChange, str]]:
    """Yield the changes that a merge may not make, with the kinds of their conflicts."""
    marked = find_marked(store, changes) if store.may_have_marks else set[str]()
    for change in changes:
        if kind := _find_kind(store, change, marked):
            yield change, kind


def _find_kind(store: GitStore, change: FileChange, marked: Collection[str]) -> str:
    if find_protected_component(change.path):
        return "protected"
    if change.path in marked:
        return "marked"
    if change.after and is_link(change.mode) and _leads_out(change.path, store.read(change.after)):
        return "link"
    return ""


def _leads_out(path: str, target: bytes) -> bool:
    """Return whether a link may lead out of the folder, or to a protected file.

    Arguments:
        path: of the link, relative to the folder.
    """
    parts = os.fsdecode(target).split("/")
    names = [name for name in parts if name not in ("", ".")]
    ups = next((place for place, name in enumerate(names) if name != ".."), len(names))
    if (not parts[0] and len(parts) > 1) or ".." in names[ups:]:
        return True  # an absolute path, or one that another link could lead out
    depth = path.count("/")
    above = path.split("/")[: depth - ups] if ups <= depth else None
    return above is None or bool(find_protected_component("/".join([*above, *names[ups:]])))
