"""Files in conflict: what a run that has its work back must decide, and how it says so."""

from __future__ import annotations

from msgspec import Struct


class FileConflict(Struct, frozen=True, gc=False, omit_defaults=True):
    """A file that a child and its parent both changed in ways no merge can combine.

    It stays open until a run of the child changes one of its paths or names it in its report.

    Arguments:
        path: relative to the workspace.
        kind: see `MergeConflict`.
        paths: all paths of the conflict, such as the old and both new names of a file that both
            sides renamed; a decision about one of them is a decision about all.
        base: id of the content before both changes; "" for none.
        version: what the child's folder has at the path: the "parent" version, the "child"
            version, "both" between conflict marks, or "" for no file.
    """

    path: str
    kind: str
    paths: tuple[str, ...]
    base: str = ""
    version: str = ""
