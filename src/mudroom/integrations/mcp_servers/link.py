"""One open connection to a server, its errors, and how it ends."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import MudroomError
from .server_process import ServerProcess

if TYPE_CHECKING:
    from .package_client import Client, HttpTransport
    from .stdio_transport import StdioTransport


class ServerError(MudroomError):
    """A server cannot be used, or a call of it failed."""


class ConnectionLost(ServerError):
    """The connection ended while a call was open.

    Attributes:
        was_refused: whether the server refused the call unseen, so that it may be sent again.
    """

    was_refused = False


class Link:
    """One open connection: its task, and the client once it is ready."""

    def __init__(self) -> None:
        self.client: Future[Client] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.process: ServerProcess | None = None
        self.transport: StdioTransport | HttpTransport | None = None
        self.task: Task[None] | None = None
        self._open_calls = 0
        self._is_retired = False

    @property
    def is_open(self) -> bool:
        """True if calls can use it, now or when it is ready."""
        is_running = self.task is not None and not self.task.done()
        return is_running and not self.stop.is_set() and not self._is_retired

    @contextmanager
    def use(self) -> Generator[None]:
        """Keep it open during a call."""
        self._open_calls += 1
        try:
            yield
        finally:
            self._open_calls -= 1
            self._stop_if_unused()

    def retire(self) -> None:
        """End it after its open calls: new ones use another."""
        self._is_retired = True
        self._stop_if_unused()

    def _stop_if_unused(self) -> None:
        if self._is_retired and not self._open_calls:
            self.stop.set()

    async def describe_end(self, error: Exception) -> str:
        """Return why the connection ended. `error`: of the request that noticed it."""
        from . import package_client

        if self.transport and self.transport.fault:
            return self.transport.fault
        if self.process and self.stop.is_set() and not package_client.is_refusal(error):
            return await self.process.describe_end()
        return package_client.describe_error(error)

    async def make_loss(self, name: str, error: Exception) -> ConnectionLost:
        """Return the error of a call whose connection ended, and begin to end it.

        A server over HTTP that has forgotten the session carried out nothing. Other calls may
        still work in that session, so the connection ends after them.

        Arguments:
            name: of the server. error: of the call.
        """
        from . import package_client

        can_lose = self.transport is not None and self.transport.has_lost_session
        if can_lose and package_client.is_session_lost(error):
            self.retire()
            text = f"server {name}: {package_client.describe_error(error)}"
            loss = ConnectionLost(text, remedy="The call had no effect; it can be repeated.")
            loss.was_refused = True
            return loss
        self.stop.set()
        how = await self.describe_end(error)
        unknown = "It is not known whether the call had an effect."
        if self.process:
            text = f"server {name} ended ({how})"
            return ConnectionLost(text, remedy=f"{unknown} The next call starts it again.")
        text = f"the connection to server {name} broke ({how})"
        return ConnectionLost(text, remedy=f"{unknown} The next call connects again.")
