"""The wait for a moment in which the user does not save a file that is to be merged."""

from __future__ import annotations

from ..._core.ports import Clock, FileInfo, Workspace
from ...errors import WorkspaceError

QUIET_SECONDS = 1.0
"""Seconds without a save after which a merge tries again."""

MAX_WAIT_SECONDS = 10.0
"""Seconds after which it tries again although the user still saves."""

_POLL_SECONDS = 0.1


async def wait_until_quiet(clock: Clock, workspace: Workspace, path: str) -> None:
    """Wait until a file has not changed for QUIET_SECONDS, for MAX_WAIT_SECONDS at most.

    An editor or a formatter that saves all the time leaves no room between the plan of a merge and
    its renames, however often it is planned again at once.
    """
    now = clock.monotonic()
    deadline = now + MAX_WAIT_SECONDS
    quiet_since = now
    seen = _look(workspace, path)
    while now < deadline and now - quiet_since < QUIET_SECONDS:
        await clock.sleep(_POLL_SECONDS)
        now = clock.monotonic()
        present = _look(workspace, path)
        if present != seen:
            seen = present
            quiet_since = now


def _look(workspace: Workspace, path: str) -> FileInfo | None:
    try:
        return workspace.stat(path)
    except WorkspaceError:
        return None
