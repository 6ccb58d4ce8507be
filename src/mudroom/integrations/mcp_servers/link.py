"""One open connection to a server, its errors, and how it ends."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import MudroomError
from .listing import Listing
from .server_process import ServerProcess
from .spec import Redact

if TYPE_CHECKING:
    from .package_client import Client, HttpTransport
    from .stdio_transport import StdioTransport


LISTING_SECONDS = 3.0
"""Longest time that runs wait for a list of tools if they have an older one."""
RETRY_SECONDS = 30.0
"""Time until a server whose tools could not be listed again is asked once more."""


class ServerError(MudroomError):
    """A server cannot be used, or a call of it failed."""


class ConnectionLost(ServerError):
    """The connection ended while a call was open.

    Attributes:
        was_refused: whether the server refused the call unseen, so that it may be sent again.
    """

    was_refused = False


class Link:
    """One open connection: its task, and the client once it is ready.

    Arguments:
        redact: replaces secrets in errors, and in the reason of a short list.
    """

    def __init__(self, redact: Redact) -> None:
        self.client: Future[Client] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.process: ServerProcess | None = None
        self.transport: StdioTransport | HttpTransport | None = None
        self.task: Task[None] | None = None
        self.listener: Task[None] | None = None
        self._fresh_until = float("inf")
        self._listing: Task[None] | None = None
        self._listing_deadline = 0.0
        self._open_calls = 0
        self._is_retired = False
        self._redact = redact

    @property
    def is_open(self) -> bool:
        """True if calls can use it, now or when it is ready."""
        is_running = self.task is not None and not self.task.done()
        return is_running and not self.stop.is_set() and not self._is_retired

    @property
    def is_stale(self) -> bool:
        """True if the server must list its tools again: it does not report when they change."""
        is_told = self.listener is not None and not self.listener.done()
        is_listing = self._listing is not None and not self._listing.done()
        is_old = asyncio.get_running_loop().time() >= self._fresh_until
        return is_old and not is_told and not is_listing

    def note_listing(self, listing: Listing) -> Listing:
        """Note how long what the server listed now is valid. Return it without secrets in `fault`.

        The server gives the reason why a list is short.
        """
        seconds = float("inf") if listing.fresh_seconds is None else listing.fresh_seconds
        self._fresh_until = asyncio.get_running_loop().time() + seconds
        return replace(listing, fault=self._redact(listing.fault))

    def expect_listing(self, listing: Task[None], seconds: float) -> None:
        """Note that the server lists its tools again. If that fails, the old list stays valid.

        Arguments:
            listing: ends after `note_listing`, or without it if it failed.
            seconds: time after which nobody waits for it any more.
        """
        now = asyncio.get_running_loop().time()
        self._listing = listing
        self._listing_deadline = now + seconds
        self._fresh_until = now + RETRY_SECONDS

    async def wait_for_listing(self) -> None:
        """Wait until the server has listed its tools again, unless that takes too long."""
        rest = self._listing_deadline - asyncio.get_running_loop().time()
        if self._listing and rest > 0:
            await asyncio.wait({self._listing}, timeout=rest)

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
            return self._redact(self.transport.fault)
        if self.process and self.stop.is_set() and not package_client.is_refusal(error):
            return await self.process.describe_end()
        return self._redact(package_client.describe_error(error))

    async def make_loss(self, name: str, error: Exception) -> ConnectionLost:
        """Return the error of a call whose connection ended, and begin to end it.

        Over HTTP each call has a stream of its own, so the connection ends after the other open
        calls. A server that has forgotten the session carried out nothing.

        Arguments:
            name: of the server. error: of the call.
        """
        from . import package_client

        if self.process:
            self.stop.set()
        else:
            self.retire()
        can_lose = self.transport is not None and self.transport.has_lost_session
        if can_lose and package_client.is_session_lost(error):
            text = f"server {name}: {self._redact(package_client.describe_error(error))}"
            loss = ConnectionLost(text, remedy="The call had no effect; it can be repeated.")
            loss.was_refused = True
            return loss
        how = await self.describe_end(error)
        unknown = "It is not known whether the call had an effect."
        if self.process:
            text = f"server {name} ended ({how})"
            return ConnectionLost(text, remedy=f"{unknown} The next call starts it again.")
        text = f"the connection to server {name} broke ({how})"
        return ConnectionLost(text, remedy=f"{unknown} The next call connects again.")
