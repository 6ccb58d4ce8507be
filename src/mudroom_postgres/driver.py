"""The asyncpg package, as used in this folder.

Nothing that lives in a connection is used: no prepared statements, settings, locks or LISTEN. So a
proxy may give each transaction another connection (PgBouncer in transaction mode).
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

from mudroom.errors import UsageError

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

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the connection."""
        ...


async def connect(url: str) -> Connection:
    """Open a connection. Raises errors of asyncpg, OSError and TimeoutError."""
    import asyncpg  # slow to import

    open_connection = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)
    options: dict[str, object] = {"timeout": _CONNECT_SECONDS, "statement_cache_size": 0}
    if find_exposed_password_file(url):
        options["passfile"] = _NO_FILE  # asyncpg would ignore it too, but print a warning
    return await open_connection(url, **options)


def find_exposed_password_file(url: str) -> str:
    """Return the path of a password file that other users can read, "" if there is none.

    A file that is not needed is not looked for.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # asyncpg refuses the address, too
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
    # A password may have the signs that end it in a valid address. So the last @ counts, but not
    # one in a parameter if there is another.
    address, question, parameters = rest.partition("?")
    if "@" not in address:
        address, question, parameters = rest, "", ""
    user, at, place = address.rpartition("@")
    shown = f"{scheme}://{user.partition(':')[0]}{at}{place}{question}{parameters}"
    return _PASSWORD.sub("", shown).rstrip("?&")
