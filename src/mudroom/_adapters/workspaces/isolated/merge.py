"""Three-way merges of trees: the result, the files that may not be written, and the conflicts.

Trees, not the run's words, show whether it resolved a conflict: its folder differs from the start
at one of the conflict's paths, and no conflict mark is left there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...._core.agents import FileConflict
from ...._core.ports import MergeChoice, MergeConflict
from ...._core.runs import Work
from ...._platform.paths import path_from_text, path_to_text
from ...._platform.protected_names import find_protected_component
from .git_store import GitStore
from .store import FILE_TYPE, REGULAR, FileChange, TreeEntry, is_link

_KINDS = {
    "CONFLICT (contents)": "both-modified",
    "CONFLICT (binary)": "binary",
    "CONFLICT (modify/delete)": "modified-deleted",
    "CONFLICT (file/directory)": "file-folder",
    "CONFLICT (directory/file)": "file-folder",
    "CONFLICT (distinct modes)": "type",
    "CONFLICT (distinct types)": "type",
}
"""git's name of a conflict -> its kind. All kinds of renames are "renamed"."""


class MergedTree(Struct, frozen=True):
    """The result of a merge of two trees; files in conflict have marks."""

    tree: str
    conflicts: tuple[MergeConflict, ...] = ()


def merge_trees(store: GitStore, base: str, ours: str, theirs: str) -> MergedTree:
    """Merge the changes from `base` to `theirs` into `ours`. Only objects are written."""
    if base in (ours, theirs) or ours == theirs:
        return MergedTree(theirs if ours == base else ours)
    # Synthetic commits give merge-tree the base: its option `--merge-base` needs git 2.40.
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
    kinds: dict[str, str] = {}
    for paths, name in messages.items():
        for path in paths:
            kinds.setdefault(path, name)
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
    """Parse the ids of base, ours and theirs by path: "100644 <id> <stage>\t<path>"."""
    stages: dict[str, list[str]] = {}
    for entry in entries:
        facts, _, path = entry.partition("\t")
        _, object_id, stage = facts.split(" ")
        stages.setdefault(path, ["", "", ""])[int(stage) - 1] = object_id
    return {path: (ids[0], ids[1], ids[2]) for path, ids in stages.items()}


def _read_conflicts(parts: list[str]) -> dict[tuple[str, ...], str]:
    """Parse git's name of each conflict by its paths: "<count>", the paths, the name, a text."""
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


def _join_paths(groups: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Map each path to all paths of its conflict, joining groups that share a path."""
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
    may_have_marks = store.may_have_marks
    for change in changes:
        if kind := _find_kind(store, change, may_have_marks=may_have_marks):
            yield change, kind


def _find_kind(store: GitStore, change: FileChange, *, may_have_marks: bool) -> str:
    entry = TreeEntry(change.mode, change.after)
    if find_protected_component(change.path):
        return "protected"
    if may_have_marks and change.after and is_marked(store, change.path, entry):
        return "marked"
    if change.after and is_link(change.mode) and _leads_out(change.path, store.read(change.after)):
        return "link"
    return ""


def _leads_out(path: str, target: bytes) -> bool:
    """Return whether a link may lead outside the folder, or to a protected file."""
    parts = os.fsdecode(target).split("/")
    names = [name for name in parts if name not in ("", ".")]
    ups = next((place for place, name in enumerate(names) if name != ".."), len(names))
    if (not parts[0] and len(parts) > 1) or ".." in names[ups:]:
        return True  # an absolute path, or one that another link could redirect outside
    depth = path.count("/")
    above = path.split("/")[: depth - ups] if ups <= depth else None
    return above is None or bool(find_protected_component("/".join([*above, *names[ups:]])))


Entries = dict[str, TreeEntry]


def find_open(
    store: GitStore, conflicts: Sequence[FileConflict], start: str, tree: str
) -> tuple[FileConflict, ...]:
    """Find the conflicts that a run began with and has not resolved."""
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
    return [path_from_text(path) for path in paths]


def select_entries(entries: Entries, paths: Iterable[str]) -> Entries:
    """Select the files at or below some paths."""
    chosen = set(paths)
    folders = tuple(f"{path}/" for path in chosen)
    return {
        path: entry for path, entry in entries.items() if path in chosen or path.startswith(folders)
    }


def take_side(entries: Entries, side: Entries, paths: Sequence[str]) -> None:
    """Replace a conflict's paths with one side's version, in place."""
    for path in select_entries(entries, paths):
        del entries[path]
    entries.update(select_entries(side, paths))


def resolve(store: GitStore, work: Work, sides: Mapping[str, str]) -> Work:
    """Resolve the open conflicts named in `sides`. See `FileTrees.resolve`."""
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
    """Write a tree with the child's own version of open conflicts."""
    mine = {each.path: "mine" for each in work.conflicts}
    return resolve(store, work, mine).tree


def add_open(
    store: GitStore, work: Work, ours: str, tree: str, conflicts: Iterable[MergeConflict]
) -> list[MergeConflict]:
    """Combine the conflicts of a merge with those the work brings.

    The work's conflict replaces the merge's, which takes a half-resolved file for the child's
    version. Conflicts of the merge have their paths as text.
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


OURS = "the parent's version"
BASE = "before both"
THEIRS = "the child's version"

_NAMED_BY_COMMIT = re.compile(rb"^(<{7}|\|{7}|>{7}) ([0-9a-f]{7,64})(.*)$", re.MULTILINE)
_MARK = re.compile(f"^(<<<<<<< {OURS}|>>>>>>> {THEIRS})".encode(), re.MULTILINE)

_MOVED = re.compile(r"~[0-9a-f]{40,64}(_\d+)?$")  # suffix of a path that git moved for a folder


def name_sides(
    store: GitStore, tree: str, paths: Iterable[str], commits: tuple[str, str, str]
) -> tuple[str, dict[str, str]]:
    """Name the sides in conflict marks, where git names commits: base, ours and theirs.

    Returns the id of the tree, and those of its files with conflicts.
    """
    names = dict(zip(commits, (BASE, OURS, THEIRS), strict=True))
    entries = store.list_entries(tree)
    files = {path: entries[path] for path in paths if path in entries}
    for path, entry in files.items():
        if entry.mode & FILE_TYPE != REGULAR:
            continue
        before = store.read(entry.id)
        after = _NAMED_BY_COMMIT.sub(lambda match: _name_side(match, names), before)
        if after != before:
            entries[path] = type(entry)(entry.mode, store.write(after))
    is_changed = any(entries[path] != entry for path, entry in files.items())
    return store.write_tree(entries) if is_changed else tree, {
        path: entries[path].id for path in files
    }


def _name_side(match: re.Match[bytes], names: Mapping[str, str]) -> bytes:
    commit = match[2].decode()
    name = next((names[each] for each in names if each.startswith(commit)), commit)
    return b"%b %b%b" % (match[1], name.encode(), match[3])


def is_marked(store: GitStore, path: str, entry: TreeEntry) -> bool:
    """Return whether a file has a merge's conflict marks, in its text or path."""
    if _MOVED.search(path):
        return True
    return entry.mode & FILE_TYPE == REGULAR and bool(_MARK.search(store.read(entry.id)))
