"""Errors of the database and its connections, translated to JournalError with a remedy."""

from __future__ import annotations

import os

from mudroom.errors import JournalBusy, JournalError, MudroomError

UNIQUE_VIOLATION = "23505"

_TOO_MANY_CONNECTIONS = "53300"

_SAFE = "Earlier records are safe."

# Prefixes of SQLSTATE codes after which the same statement may succeed on a new connection.
_RETRIED_STATES = ("08", "40", "57P01", "57P02", "57P03", "57P05", "53300", "25P03", "55P03")

_BAD_ADDRESS = (
    "the address of the database cannot be used",
    "Check what follows after ? in the address, and the variables PG… with their files.",
)

# Prefix of a SQLSTATE code -> message and remedy.
_REMEDIES = {
    "53100": (
        "the disk of the database server is full; this was not recorded",
        f"{_SAFE} Free some space on the server, then resume the session.",
    ),
    _TOO_MANY_CONNECTIONS: (
        "the database server has no free connection",
        "Raise max_connections of the server, use a connection pooler, or end other programs.",
    ),
    "25006": (
        "the database is read-only; this was not recorded",
        f"{_SAFE} Give the address of the primary server.",
    ),
    "28": (
        "the database server refuses this user",
        "Check the user and the password: PGPASSWORD, ~/.pgpass, and pg_hba.conf of the server.",
    ),
    "3D": ("there is no such database", "Create it: createdb DATABASE"),
    "42501": (
        "the database user has not the rights that the store needs",
        "Let a user with the right CREATE on the database open the store once, then "
        "grant USAGE on schema mudroom, and SELECT, INSERT, UPDATE and DELETE on its tables.",
    ),
    "42P01": (
        "a table of the schema mudroom is missing",
        "Restore the schema from a backup, or drop it whole: mudroom then creates it again, empty.",
    ),
    "42704": _BAD_ADDRESS,  # a parameter that the server does not know
    "22023": _BAD_ADDRESS,  # a value that it does not know
    "42703": (
        "the tables of the schema mudroom are not those of this program",
        "Use the version of mudroom that created them, or another database.",
    ),
}


class AppendCollision(Exception):
    """A record with the number of a new event is already stored."""


def get_state(error: BaseException) -> str:
    """Return the SQLSTATE code of a server error, "" for any other error."""
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def is_temporary(error: BaseException) -> bool:
    """Return whether a statement may succeed if sent again on a new connection.

    The server may or may not have executed it already.
    """
    if isinstance(error, MudroomError | AppendCollision):
        return False
    state = get_state(error)
    # No code means a broken connection. asyncpg raises plain exceptions when a server dies.
    return state.startswith(_RETRIED_STATES) if state else True


def translate_error(error: BaseException, place: str) -> JournalError:
    """Translate an error of a statement or connection."""
    state = get_state(error)
    text = describe_cause(error)
    if isinstance(error, ValueError):  # of asyncpg, before it connects
        message, remedy = _BAD_ADDRESS
        return JournalError(f"{message}: {text}", where=place, remedy=remedy)
    for beginning, (message, remedy) in _REMEDIES.items():
        if state.startswith(beginning):
            return JournalError(f"{message}: {text}", where=place, remedy=remedy)
    if not state or is_temporary(error):
        return JournalError(
            f"the database cannot be reached: {text}",
            where=place,
            remedy="Check the address, the network, and that the server runs.",
        )
    return JournalError(
        f"the database refuses a statement: {text} (SQLSTATE {state})",
        where=place,
        remedy=f"{_SAFE} See the log of the database server.",
    )


def make_unrecorded_error(error: BaseException, place: str, seconds: float) -> JournalError:
    """Make the error for events that could not be stored.

    Arguments:
        error: the error of the last attempt.
        seconds: how long the database was retried.
    """
    if not is_temporary(error):
        return translate_error(error, place)
    if get_state(error) == _TOO_MANY_CONNECTIONS:
        what = "the database server had no free connection"
        remedy = "Raise max_connections of the server, use a connection pooler, or end other"
        remedy += " programs; then resume the session."
    else:
        what = "the database could not be reached"
        remedy = "Check the server and the network, then resume the session."
    return JournalError(
        f"{what} for {seconds:g} seconds; this was not recorded: {describe_cause(error)}",
        where=place,
        remedy=f"{_SAFE} {remedy}",
    )


def describe_cause(error: BaseException) -> str:
    """Describe a cause in words; a system error without its number and address."""
    if isinstance(error, OSError) and error.errno:
        text = os.strerror(error.errno) if error.errno > 0 else error.strerror
        if text:
            return text
    # asyncpg adds the detail and the hint of the server as further lines.
    return " ".join(str(error).split()) or type(error).__name__


def make_lost_session_error(place: str) -> JournalBusy:
    """Make the error for a writer whose session another process has taken over."""
    return JournalBusy(
        "another process has taken this session over; this was not recorded",
        where=place,
        remedy="The session goes on there. mudroom show reads it.",
    )
