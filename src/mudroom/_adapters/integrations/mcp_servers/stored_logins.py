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

from ...._platform.private_files import make_private_folder, replace_private_file

LOGINS = "logins"  # subfolder of the folder with servers' listings


class StoredLogin(Struct, frozen=True):
    """A server's login, with its authorization server's values."""

    url: str
    issuer: str = ""  # address of the authorization server
    tokens: dict[str, Any] | None = None  # None after a failed login
    expires_at: float | None = None  # seconds since 1970; None if the access token does not expire
    client: dict[str, Any] | None = None  # as registered
    metadata: dict[str, Any] | None = None  # published by the authorization server
    resource: dict[str, Any] | None = None  # published by the MCP server
    lacks_rights: bool = False  # a call has lacked rights since the last login
    needed_scope: str = ""  # rights the server named, separated by spaces

    def list_secrets(self) -> dict[str, str]:
        """List its tokens and the client's secret, under names that mark them as secret."""
        values = {**(self.tokens or {}), **(self.client or {})}
        return {
            f"LOGIN_{name.upper()}": value
            for name, value in values.items()
            if name.endswith(("_token", "_secret")) and isinstance(value, str)
        }


class LoginFile:
    def __init__(self, folder: str, url: str) -> None:
        digest = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._path = Path(folder, f"{digest}.json")
        self._url = url

    def load(self) -> StoredLogin | None:
        try:
            login = msgspec.json.decode(self._path.read_bytes(), type=StoredLogin)
        except (OSError, msgspec.MsgspecError):
            return None
        return login if login.url == self._url else None

    def store(self, login: StoredLogin) -> None:
        replace_private_file(self._path, msgspec.json.encode(login))

    def remove(self) -> bool:
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        """Keep other processes from refreshing the tokens inside the block."""
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


# Seconds between attempts. Polled, because a blocking lock would need a thread.
_LOCK_POLL = 0.05
