"""The user's session store: the database named by the setting `store`, or files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    from mudroom_serve.state.server_state import ServerState

    from ..._core.ports import SessionStore

_address = ""


def use_store(address: str) -> None:
    """Use the store at this address from now on, "" for session files. Does not connect."""
    global _address
    _address = address


def open_store(home: str) -> SessionStore:
    """Open the user's session store. Raises UsageError for an unusable address."""
    from ..._adapters.journals import sessions  # slow to import

    return sessions.open_store(home, _address)


def get_address() -> str:
    """Return the address of the user's database, "" for session files."""
    return _address


def describe_store(home: str) -> str:
    if not _address:
        return home
    from ..._adapters.journals import sessions  # slow to import

    return sessions.hide_password(_address)


def require_files(command: str) -> None:
    """Raise UsageError if the sessions are not files."""
    if _address:
        raise UsageError(
            f"{command} works on session files, and the setting store names a database",
            remedy="Back up and repair the database with its own programs.",
        )


def open_server_state(home: str) -> ServerState:
    """Open the state of `mudroom serve`: in the sessions' database, or in a file.

    Raises StateError, UsageError.
    """
    if _address:
        from mudroom_serve.state.state_tables import StateTables

        from ..._adapters.journals.sessions import open_connection

        return StateTables(open_connection(_address))
    from mudroom_serve.state.state_file import StateFile

    return StateFile(home)
