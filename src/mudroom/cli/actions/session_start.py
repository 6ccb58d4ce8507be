"""Start options parsed from the command line: a new, resumed or forked session."""

from __future__ import annotations

from msgspec import Struct

from ...config import Settings


class SessionStart(Struct, frozen=True, kw_only=True):
    """Choice of a session to start with.

    Arguments:
        resume: id of the session to resume, "" for a new one. fork: resume it as a new session.
        folder: folder of the resumed session.
        id: id of the new session, "" for any. name: name to give to the session, "" for none.
        asks: the user chooses the session to resume at the prompt.
    """

    resume: str = ""
    fork: bool = False
    folder: str = ""
    id: str = ""
    name: str = ""
    asks: bool = False


NEW_SESSION = SessionStart()


class StartOptions(Struct, frozen=True, kw_only=True):
    """Options of a command line for a session.

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
