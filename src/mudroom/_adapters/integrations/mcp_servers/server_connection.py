"""A connection to an MCP server: opened at first use, in a separate task, and shared."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future, Task
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from ...._core.ports.servers import ServerState
from ...._platform.time_limits import time_limit
from ....errors import MudroomError, UsageError
from .listing import Content, ListedTool, Listing, ServerResult
from .open_calls import AskUser, OpenCall, Questions, decline
from .server_process import ServerProcess, start_server_process
from .spec import Redact, ServerPlace, ServerSpec

if TYPE_CHECKING:
    from . import package_client
    from .package_client import Client, HttpTransport
    from .stdio_transport import StdioTransport

__all__ = ["Connection", "ServerError"]

IDLE_SECONDS = 300.0  # without progress until a call fails
_END_SECONDS = 3.0  # longest wait for a closed connection to end

# A server started more often than this within START_WINDOW has failed.
MAX_STARTS = 3
START_WINDOW = 60.0  # seconds

INSTALL_COMMAND = "pip install 'mudroom[mcp]'"

log = logging.getLogger("mudroom")

T = TypeVar("T")
Send = Callable[["package_client.Client", Callable[[str], object]], Awaitable[T]]
"""Sends a request; its second argument receives progress lines."""


class PastStarts:
    def __init__(self, protocol: str, *, logs_failures: bool) -> None:
        self.times: deque[float] = deque(maxlen=MAX_STARTS)
        self.reported = ""  # the last logged reason
        self._logs_failures = logs_failures
        self.protocol = protocol  # revision of the last connection, "" if unknown
        self.is_era_wrong = False  # the server refused that revision

    def report(self, server: str, reason: str) -> None:
        if self._logs_failures and reason != self.reported:
            self.reported = reason
            log.warning("server %s cannot be used: %s", server, reason)


class Connection:
    """A connection to a server.

    The package needs a connection to be opened and closed in the same task, so each has its own
    task. A server that ended restarts at the next call, but not too often.

    Arguments:
        on_listing: called whenever the server has listed its tools.
        protocol: revision used by an earlier session, "" if unknown.
        logs_failures: log why the server cannot be used; False if the caller shows it.
        folder, environ, logins, redact, note_headers: see ServerPlace.
    """

    def __init__(
        self,
        spec: ServerSpec,
        folder: str,
        environ: Mapping[str, str],
        on_listing: Callable[[Listing], object],
        *,
        logins: str = "",
        protocol: str = "",
        idle_seconds: float = IDLE_SECONDS,
        logs_failures: bool = True,
        redact: Redact = str,
        note_headers: Callable[[Mapping[str, str]], object] = dict,
    ) -> None:
        self.spec = spec
        self.state: ServerState = "not started"
        self.reason = ""
        self.starts = 0
        self._place = ServerPlace(folder, environ, logins, redact, note_headers)
        self._on_listing = on_listing
        self._idle_seconds = idle_seconds
        self._link: Link | None = None
        self._links: set[Link] = set()
        self._past = PastStarts(protocol, logs_failures=logs_failures)
        self._calls: set[OpenCall] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions = Questions(spec.name)
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        link = self._link
        return link.process.pid if link and link.process and link.is_open else None

    @property
    def needs_login(self) -> bool:
        """True if the server failed because it wants a login or a token."""
        transport = self._link.transport if self._link else None
        return self.state == "failed" and transport is not None and transport.needs_login

    @property
    def last_lines(self) -> str:
        link = self._link
        return link.process.get_last_lines() if link and link.process else ""

    async def open(self) -> None:
        await self._get_link()

    async def call(
        self,
        tool: ListedTool,
        arguments: dict[str, Any],
        on_progress: Callable[[str], object],
        ask: AskUser = decline,
    ) -> ServerResult:
        """Call a tool. Raises ServerError.

        The call is repeated only if the server ended, is trusted, and says that this is safe.
        """
        return await self._request(
            lambda client, report: _get_package().call_tool(client, tool.name, arguments, report),
            on_progress,
            ask,
            may_repeat=self.spec.is_trusted and (tool.is_read_only or tool.is_idempotent),
        )

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> list[Content]:
        return await self._request(
            lambda client, _: _get_package().get_prompt(client, name, arguments), may_repeat=True
        )

    async def read_resource(self, uri: str) -> list[Content]:
        return await self._request(
            lambda client, _: _get_package().read_resource(client, uri), may_repeat=True
        )

    async def _request(
        self,
        send: Send[T],
        on_progress: Callable[[str], object] = str,
        ask: AskUser = decline,
        *,
        may_repeat: bool,
    ) -> T:
        """Send a request; repeat it once if the connection ended and that is safe."""
        try:
            return await self._request_once(send, on_progress, ask)
        except ConnectionLost as error:
            if not (may_repeat or error.was_refused):
                raise
        return await self._request_once(send, on_progress, ask)

    async def _request_once(
        self, send: Send[T], on_progress: Callable[[str], object], ask: AskUser
    ) -> T:
        link = await self._get_link()
        call = OpenCall(self.spec.call_timeout, self._idle_seconds)

        def report(line: str) -> None:
            call.extend()
            on_progress(line)

        try:
            async with call.timeout:
                self._calls.add(call)
                with self._questions.accept(ask, call.pause), link.use():
                    return await send(link.client.result(), report)
        except TimeoutError as error:
            text = f"server {self.spec.name}: {call.describe_timeout()}"
            raise ServerError(text, remedy="Try a smaller step, or do without.") from error
        except Exception as error:  # noqa: BLE001  the package raises many kinds
            await self._raise_for(link, error)
        finally:
            self._calls.discard(call)

    async def _raise_for(self, link: Link, error: Exception) -> NoReturn:
        """Raise a call's error, or the end of the server if that is the cause."""
        name = self.spec.name
        if not _get_package().is_lost(error):
            text = self._place.redact(_get_package().describe_error(error))
            raise ServerError(f"server {name}: {text}") from error
        raise await link.make_loss(name, error) from error

    async def _get_link(self) -> Link:
        if self._is_closed:
            raise ServerError(f"server {self.spec.name}: the session is closed")
        if self._link is None or not self._link.is_open:
            self._link = self._start()
        link = self._link
        try:
            async with time_limit(self.spec.start_timeout):
                return await self._wait_until_ready(link)
        except TimeoutError as error:
            self._fail(f"it was not ready within {self.spec.start_timeout:g} s")
            if link.task:
                link.task.cancel()
            raise self._make_error() from error

    async def _wait_until_ready(self, link: Link) -> Link:
        """Wait for the connection. A server that refuses its earlier era is restarted."""
        try:
            await asyncio.shield(link.client)
            return link
        except ServerError:
            if not self._past.is_era_wrong:
                raise
        self._past.is_era_wrong = False
        if self._link is link:
            self._link = self._start()
        again = self._link
        assert again
        await asyncio.shield(again.client)
        return again

    def _start(self) -> Link:
        """Begin to open a connection. Raises ServerError after too many failures."""
        now = asyncio.get_running_loop().time()
        times = self._past.times
        if len(times) == MAX_STARTS and now - times[0] < START_WINDOW:
            how = "it ended" if self.spec.transport == "stdio" else "its connection broke"
            self._fail(self.reason or f"{how} {MAX_STARTS} times in {START_WINDOW:g} s")
            raise self._make_error()
        times.append(now)
        self.starts += 1
        self.state = "starting"
        self.reason = ""
        link = Link(self._place.redact)
        self._links.add(link)
        link.task = asyncio.create_task(self._run_link(link))
        return link

    def _fail(self, reason: str) -> None:
        """Set the state, and tell the user any new reason: only the model reads the result."""
        self.state = "failed"
        self.reason = self._place.redact(reason)
        self._past.report(self.spec.name, self.reason)

    def _make_error(self) -> ServerError:
        return ServerError(
            f"server {self.spec.name} cannot be used: {self.reason}", where=self.spec.origin
        )

    async def _run_link(self, link: Link) -> None:
        """Open a connection, keep it until `link.stop` is set, and close it: all in this task."""
        try:
            await self._serve(link)
        except Exception as error:  # noqa: BLE001  the package raises many kinds
            if not link.client.done():
                await self._fail_start(link, error)
        finally:
            self._links.discard(link)
            if not link.client.done():
                link.client.set_exception(ServerError(f"server {self.spec.name}: start cancelled"))
                link.client.exception()
            if self.state == "ready" and self._link is link:
                self.state = "not started"

    async def _fail_start(self, link: Link, error: Exception) -> None:
        self._past.is_era_wrong = bool(self._past.protocol) and _get_package().is_refusal(error)
        self._past.protocol = ""
        if isinstance(error, MudroomError):
            place = "" if error.where == self.spec.origin else error.where
            self._fail(str(MudroomError(error.message, where=place, remedy=error.remedy)))
        else:
            self._fail(await link.describe_end(error))
        link.client.set_exception(self._make_error())
        link.client.exception()  # or asyncio logs it if no caller is left

    async def _serve(self, link: Link) -> None:
        await load_package()
        from . import package_client

        place = self._place
        async with AsyncExitStack() as stack:
            if self.spec.transport == "stdio":
                link.process = await start_server_process(self.spec, place)
                link.transport = package_client.StdioTransport(link.process, link.stop.set)
            elif self.spec.transport == "http":
                headers = await collect_headers(self.spec, place.folder, place.environ)
                place.note_headers(headers)
                link.transport = package_client.HttpTransport(self.spec, headers, place.logins)
            else:
                raise ServerError(
                    "the transport sse is not supported", remedy='Use the address for "http".'
                )
            client = await stack.enter_async_context(
                package_client.make_client(
                    self.spec.name,
                    link.transport.connect(),
                    place.folder,
                    self._refresh_soon,
                    self._extend_calls,
                    self._questions.answer,
                    known_protocol=self._past.protocol,
                )
            )
            listing = await package_client.list_offers(client)
            self._past.protocol = listing.protocol
            self._on_listing(link.note_listing(listing))
            link.listener = asyncio.create_task(self._listen(client))
            stack.push_async_callback(_cancel, link.listener)
            self.state = "ready"
            link.client.set_result(client)
            await link.stop.wait()

    async def _listen(self, client: package_client.Client) -> None:
        with suppress(Exception):  # without it, a failed call reveals that the tools changed
            await _get_package().listen_for_changes(client, self._refresh_soon)

    def _extend_calls(self) -> None:
        for call in self._calls:
            call.extend()

    def _refresh_soon(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._refresh())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _refresh(self) -> None:
        with suppress(Exception):  # the next start lists them
            link = await self._get_link()
            async with time_limit(self.spec.start_timeout):
                listing = await _get_package().list_offers(link.client.result())
            self._on_listing(link.note_listing(listing))

    async def refresh_if_stale(self) -> None:
        """List a running server's tools again if the last list has expired.

        All waiters share one listing. If it takes too long, calls use the old list, and name any
        changes.
        """
        link = self._link
        if self.state != "ready" or link is None or not link.is_open:
            return
        if link.is_stale:
            seconds = min(LISTING_SECONDS, self.spec.start_timeout)
            link.expect_listing(self._refresh_soon(), seconds)
        await link.wait_for_listing()

    async def restart(self) -> None:
        """Restart the server; its open calls fail. Raises ServerError."""
        await self._end_links()
        self._past.times.clear()
        self._past.reported = ""
        await self._get_link()

    async def close(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await self._end_links()

    async def _end_links(self) -> None:
        """End the connection, and retired ones with open calls."""
        tasks = [link.task for link in self._links if link.task]
        for link in self._links:
            if link.task and not link.client.done():
                link.task.cancel()
            link.stop.set()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=_END_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_END_SECONDS)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def load_package() -> None:
    """Import the package's client in a thread. Raises ServerError if it is not installed."""
    if find_spec("mcp") is None:
        raise ServerError("the package mcp is not installed", remedy=f"Run: {INSTALL_COMMAND}")
    await asyncio.to_thread(import_module, f"{__package__}.package_client")


def _get_package():
    # Only for use once a connection has been opened: before that, the import takes about a second.
    from . import package_client

    return package_client


_HELPER_SECONDS = 10.0


async def collect_headers(
    spec: ServerSpec, folder: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Collect the headers for requests to a server. Raises UsageError."""
    headers = dict(spec.headers)
    if variable := spec.bearer_token_variable:
        token = environ.get(variable)
        if not token:
            raise UsageError(
                f"the variable {variable} is not set",
                where=spec.origin,
                remedy="Set it to the token of the server.",
            )
        headers["Authorization"] = f"Bearer {token}"
    if spec.headers_helper:
        headers |= await _run_helper(spec, folder, environ)
    return headers


async def _run_helper(spec: ServerSpec, folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    process = await asyncio.create_subprocess_shell(
        spec.headers_helper,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=folder,
        env=dict(environ),
    )
    try:
        async with time_limit(_HELPER_SECONDS):
            output, _ = await process.communicate()
        return msgspec.json.decode(output, type=dict[str, str])
    except (TimeoutError, msgspec.DecodeError) as error:
        raise UsageError(
            f"headersHelper printed no JSON object of texts within {_HELPER_SECONDS:g} s",
            where=spec.origin,
            remedy=f"Run it alone to see why: {spec.headers_helper}",
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


LISTING_SECONDS = 3.0  # longest wait for a list of tools by runs that have an older one
RETRY_SECONDS = 30.0  # before listing tools again after a failed attempt


class ServerError(MudroomError):
    """A server cannot be used, or a call to it failed."""


class ConnectionLost(ServerError):
    """The connection ended while a call was open."""

    was_refused = False  # the server refused the call unseen, so it may be sent again


class Link:
    """An open connection: its task, and its client once ready."""

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
        """True if calls can use it, now or once it is ready."""
        is_running = self.task is not None and not self.task.done()
        return is_running and not self.stop.is_set() and not self._is_retired

    @property
    def is_stale(self) -> bool:
        """True if the server must list its tools again, because it does not report changes."""
        is_told = self.listener is not None and not self.listener.done()
        is_listing = self._listing is not None and not self._listing.done()
        is_old = asyncio.get_running_loop().time() >= self._fresh_until
        return is_old and not is_told and not is_listing

    def note_listing(self, listing: Listing) -> Listing:
        # The fault is the server's reason for a short list, and may hold secrets.
        seconds = float("inf") if listing.fresh_seconds is None else listing.fresh_seconds
        self._fresh_until = asyncio.get_running_loop().time() + seconds
        return replace(listing, fault=self._redact(listing.fault))

    def expect_listing(self, listing: Task[None], seconds: float) -> None:
        # If the listing fails, the old list stays valid.
        now = asyncio.get_running_loop().time()
        self._listing = listing
        self._listing_deadline = now + seconds
        self._fresh_until = now + RETRY_SECONDS

    async def wait_for_listing(self) -> None:
        """Wait for the server to list its tools again, unless that takes too long."""
        rest = self._listing_deadline - asyncio.get_running_loop().time()
        if self._listing and rest > 0:
            await asyncio.wait({self._listing}, timeout=rest)

    @contextmanager
    def use(self) -> Generator[None]:
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
        """Describe why the connection ended, given the error of the request that noticed."""
        if self.transport and self.transport.fault:
            return self._redact(self.transport.fault)
        if self.process and self.stop.is_set() and not _get_package().is_refusal(error):
            return await self.process.describe_end()
        return self._redact(_get_package().describe_error(error))

    async def make_loss(self, name: str, error: Exception) -> ConnectionLost:
        """Make the error of a call whose connection ended, and begin to end the connection.

        Over HTTP, each call has its own stream, so the connection ends after the other open calls.
        A server that has forgotten the session has carried out nothing.
        """
        if self.process:
            self.stop.set()
        else:
            self.retire()
        can_lose = self.transport is not None and self.transport.has_lost_session
        if can_lose and _get_package().is_session_lost(error):
            text = f"server {name}: {self._redact(_get_package().describe_error(error))}"
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
