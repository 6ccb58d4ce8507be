"""The asyncpg package as used in this folder, and its errors with a remedy.

It keeps no state in a connection: no prepared statements, settings, locks or LISTEN. So a proxy may
give each transaction a different connection (PgBouncer in transaction mode).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, urlsplit

from mudroom.errors import JournalBusy, JournalError, MudroomError, UsageError

# Time limit of one attempt to connect.
_CONNECT_SECONDS = 10

# A path that cannot exist.
_NO_FILE = f"{os.devnull}/none"

_PARAMETER = "[^#&=]+=[^#&]*"
_URL = re.compile(
    r"postgres(ql)?://([^/?#@]*@)?(?P<hosts>[^/?#@]*)(/[^?#@]*)?"
    rf"(\?({_PARAMETER}(&{_PARAMETER})*)?)?",
    re.DOTALL,
)
_HOST = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(:(?P<port>[0-9]{0,5}))?")

_PASSWORD = re.compile(r"(?<=[?&])(password|sslpassword)=[^&]*&?")


class Connection(Protocol):
    """The part of asyncpg's Connection used here."""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str: ...

    async def fetch(
        self, query: str, *args: object, timeout: float | None = None
    ) -> Sequence[Mapping[str, Any]]: ...

    async def copy_to_table(
        self,
        table_name: str,
        *,
        source: bytearray,
        columns: Sequence[str],
        schema_name: str,
        format: str,
        timeout: float | None = None,
    ) -> str: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...


async def connect(url: str) -> Connection:
    """Open a connection. Raises errors of asyncpg, OSError and TimeoutError."""
    import asyncpg  # slow to import

    open_connection = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)
    options: dict[str, object] = {"timeout": _CONNECT_SECONDS, "statement_cache_size": 0}
    if find_exposed_password_file(url):
        options["passfile"] = _NO_FILE  # asyncpg would ignore it too, but print a warning
    return await open_connection(url, **options)


def find_exposed_password_file(url: str) -> str:
    """Find a password file that other users can read; "" if there is none.

    Does not look for a file that is not needed.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # asyncpg also refuses the address
        return ""
    parameters = dict(parse_qsl(parts.query))
    if parts.password or "password" in parameters or os.environ.get("PGPASSWORD"):
        return ""
    named = parameters.get("passfile") or os.environ.get("PGPASSFILE")
    path = Path(named or os.path.expanduser("~/.pgpass"))
    with suppress(OSError):
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return str(path)
    return ""


def check_url(url: str) -> None:
    """Check a database address. Raises UsageError, also if asyncpg is not installed."""
    if not _is_valid(url):
        raise UsageError(
            "this is not the address of a PostgreSQL database",
            where=hide_password(url),
            remedy="Write postgresql://USER@HOST:PORT/DATABASE. In a password, write %2F for /, "
            "%3F for ?, %23 for # and %40 for @.",
        )
    if find_spec("asyncpg") is None:
        raise UsageError(
            "the PostgreSQL store needs the package asyncpg",
            where=hide_password(url),
            remedy="Install it: pip install 'mudroom[postgres]'",
        )


def _is_valid(url: str) -> bool:
    match = _URL.fullmatch(url)
    if match is None:
        return False
    hosts = match["hosts"]
    found = [_HOST.fullmatch(host) for host in hosts.split(",")] if hosts else []
    return all(host and int(host["port"] or 1) in range(1, 65_536) for host in found)


def hide_password(url: str) -> str:
    """Remove the password from an address, valid or not, for messages."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.rpartition("@")[2]
    # A password may contain characters that would end it in a valid address. So the last @ counts,
    # but not one in a parameter if there is another.
    address, question, parameters = rest.partition("?")
    if "@" not in address:
        address, question, parameters = rest, "", ""
    user, at, place = address.rpartition("@")
    shown = f"{scheme}://{user.partition(':')[0]}{at}{place}{question}{parameters}"
    return _PASSWORD.sub("", shown).rstrip("?&")


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
    "42704": _BAD_ADDRESS,  # a parameter unknown to the server
    "22023": _BAD_ADDRESS,  # a value unknown to it
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
    state = get_state(error)
    text = describe_cause(error)
    if isinstance(error, ValueError):  # from asyncpg, before it connects
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
    """Make the error for events that could not be stored despite retries for some seconds."""
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
    # asyncpg adds the server's detail and hint as further lines.
    return " ".join(str(error).split()) or type(error).__name__


def make_lost_session_error(place: str) -> JournalBusy:
    return JournalBusy(
        "another process has taken this session over; this was not recorded",
        where=place,
        remedy="The session goes on there. mudroom show reads it.",
    )
