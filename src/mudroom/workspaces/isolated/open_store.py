"""Choice of the store of a session: with git, or without it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...errors import WorkspaceError
from .git import explain_unusable_git
from .git_store import GitStore
from .plain_store import PlainStore
from .store import TreeStore

_WITH_GIT = "store.git"
_WITHOUT_GIT = "store"
"""Names of the folders of both kinds."""


def has_store(directory: str) -> bool:
    """Return whether the folder of a session has a store."""
    return any(os.path.isdir(os.path.join(directory, name)) for name in (_WITH_GIT, _WITHOUT_GIT))


def open_store(directory: str, source: str, excluded: Iterable[str] = ()) -> TreeStore:
    """Open the store of a session, or make it: with git if it can be used.

    Arguments:
        directory: folder of the session. source, excluded: see TreeStore.

    Raises WorkspaceError if there is a store that needs git, and git cannot be used.
    """
    with_git = os.path.join(directory, _WITH_GIT)
    without_git = os.path.join(directory, _WITHOUT_GIT)
    reason = explain_unusable_git(os.path.realpath(source))
    if os.path.isdir(without_git):
        return PlainStore(without_git, source, excluded)
    if not reason:
        return GitStore(with_git, source, excluded)
    if os.path.isdir(with_git):
        raise WorkspaceError(
            f"the isolated workspaces of this session need git: {reason}",
            where=with_git,
            remedy="Install git 2.31 or later.",
        )
    return PlainStore(without_git, source, excluded)
