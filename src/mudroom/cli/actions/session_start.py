"""Start options parsed from the command line: a new, resumed or forked session."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


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
    def session_arguments(self) -> dict[str, Any]:
        """The arguments of Session for this choice."""
        return {"resume": self.resume, "fork": self.fork, "id": self.id}


NEW_SESSION = SessionStart()
