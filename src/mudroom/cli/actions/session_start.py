"""Start options parsed from the command line: a new, resumed or forked session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict

from msgspec import Struct

from ...config import Settings, load_home
from .load_settings import load_settings, require_folder


class SessionArguments(TypedDict):
    """The session options that a SessionStart sets."""

    resume: str
    fork: bool
    id: str


class SessionStart(Struct, frozen=True, kw_only=True):
    """Choice of a session to start with.

    Arguments:
        resume: id of the session to resume, "" for a new one. fork: resume it as a new session.
        folder: folder of the resumed session.
        id: id of the new session, "" for any. name: name to give to the session, "" for none.
    """

    resume: str = ""
    fork: bool = False
    folder: str = ""
    id: str = ""
    name: str = ""

    @property
    def session_arguments(self) -> SessionArguments:
        """The session options for this choice."""
        return {"resume": self.resume, "fork": self.fork, "id": self.id}


NEW_SESSION = SessionStart()


class StartOptions(Struct, frozen=True, kw_only=True):
    """Everything that a command line says about a session.

    Arguments:
        cwd: folder of the session. start: the session to start with.
        verbose: a line on stderr for each tool call if there is no live tree.
        quiet: only errors on stderr.
    """

    settings: Settings
    cwd: str
    start: SessionStart = NEW_SESSION
    verbose: bool = False
    quiet: bool = False


def prepare_start(
    cwd: str,
    selection: Mapping[str, Any],
    flags: Mapping[str, object],
    *,
    verbose: bool,
    quiet: bool,
) -> StartOptions:
    """Select the session, load the settings of its folder, and return all start options.

    Arguments:
        cwd: folder of the command line; a resumed session has its own.
        selection: flags that select a session, as for `select_session`.
        flags: settings given as flags.
    """
    start = NEW_SESSION
    if any(value not in (None, False) for value in selection.values()):
        import asyncio  # slow to import, as are the next ones

        from .select_session import select_session
        from .session_store import open_store

        require_folder(cwd)
        store = open_store(load_home(os.environ))
        start = asyncio.run(select_session(store, cwd, **selection))
        cwd = start.folder or cwd
    settings = load_settings(cwd, **flags)
    return StartOptions(settings=settings, cwd=cwd, start=start, verbose=verbose, quiet=quiet)
