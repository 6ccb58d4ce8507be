"""Files that a merge may not write, although both sides can be merged."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from ..._platform.protected_names import find_protected_component
from .conflict_marks import find_marked
from .store import TreeStore
from .trees import FileChange, is_link, list_parents


def find_obstacles(
    store: TreeStore, changes: Sequence[FileChange]
) -> Iterator[tuple[FileChange, str]]:
    """Yield the changes that a merge may not make, with the kinds of their conflicts."""
    marked = find_marked(store, changes) if store.may_have_marks else set[str]()
    folders = list_parents(change.path for change in changes)
    for change in changes:
        if kind := _find_kind(store, change, marked, folders):
            yield change, kind


def _find_kind(
    store: TreeStore, change: FileChange, marked: Collection[str], folders: Collection[str]
) -> str:
    if find_protected_component(change.path):
        return "protected"
    if change.path in folders:  # a file that becomes a folder, or a folder that becomes a file
        return "file-folder"
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
