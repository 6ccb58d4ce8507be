"""The state of `mudroom serve`: in the database if the sessions are there, else in a file."""

from __future__ import annotations

from mudroom_serve.state.server_state import ServerState

from .user_store import get_address


def open_state(home: str) -> ServerState:
    """Open the state. Raises StateError, UsageError.

    Arguments:
        home: mudroom's state folder.
    """
    if address := get_address():
        from mudroom_serve.state.state_tables import StateTables

        from ..._adapters.journals.sessions import open_connection

        return StateTables(open_connection(address))
    from mudroom_serve.state.state_file import StateFile

    return StateFile(home)
