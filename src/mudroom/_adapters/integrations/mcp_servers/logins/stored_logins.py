"""Logins of MCP servers on disk: tokens and the registered client, private to the user."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ....._platform.private_files import make_private_folder, replace_private_file

LOGINS = "logins"
"""Folder of the logins, in the folder of what servers listed."""


class StoredLogin(Struct, frozen=True):
    """Login of one server. The values are those of the authorization server.

    Arguments:
        issuer: address of the authorization server that gave them.
        tokens: access token and refresh token; None after a failed login.
        expires_at: seconds since 1970; None if the access token does not expire.
        client: the client as it is registered.
        metadata, resource: what the authorization server and the MCP server publish.
        lacks_rights: whether a call lacked rights since the last login.
        needed_scope: those rights as far as the server named them; words with spaces between.
    """

    url: str
    issuer: str = ""
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    client: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    lacks_rights: bool = False
    needed_scope: str = ""

    def list_secrets(self) -> dict[str, str]:
        """Return its tokens and the secret of the client, as variables with a secret name."""
        values = {**(self.tokens or {}), **(self.client or {})}
        return {
            f"LOGIN_{name.upper()}": value
            for name, value in values.items()
            if name.endswith(("_token", "_secret")) and isinstance(value, str)
        }


class LoginFile:
    """File with the login of one server.

    Arguments:
        folder: of all logins. url: of the server.
    """

    def __init__(self, folder: str, url: str) -> None:
        digest = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._path = Path(folder, f"{digest}.json")
        self._url = url

    def load(self) -> StoredLogin | None:
        """Return the login, None if there is none that can be used."""
        try:
            login = msgspec.json.decode(self._path.read_bytes(), type=StoredLogin)
        except (OSError, msgspec.MsgspecError):
            return None
        return login if login.url == self._url else None

    def store(self, login: StoredLogin) -> None:
        """Replace the login at once. Raises OSError."""
        make_private_folder(self._path.parent)
        replace_private_file(self._path, msgspec.json.encode(login))

    def remove(self) -> bool:
        """Remove the login. Return False if there was none."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        """Keep other processes from a refresh of the tokens until the end of the block."""
        make_private_folder(self._path.parent)
        path = self._path.with_suffix(".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_POLL)
            yield
        finally:
            os.close(descriptor)


_LOCK_POLL = 0.05
"""Seconds between two attempts to get the lock of another session."""
