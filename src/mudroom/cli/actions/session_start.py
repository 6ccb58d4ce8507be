"""How a session begins: a value that flags become, known before anything else of a session is."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class SessionStart(Struct, frozen=True, kw_only=True):
    """How a session begins: anew, or with what is recorded.

    Arguments:
        resume: id of the session to go on with, "" for a new one. fork: with a copy of it. folder: where it worked.
        id, name: of the session that begins; "" for any, or none.
    """

    resume: str = ""
    fork: bool = False
    folder: str = ""
    id: str = ""
    name: str = ""

    @property
    def session_arguments(self) -> dict[str, Any]:
        """The arguments of Session that say so."""
        return {"resume": self.resume, "fork": self.fork, "id": self.id}


NEW_SESSION = SessionStart()
