"""`mudroom mcp login` and `logout`: OAuth logins of HTTP servers."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, cast

from ...._adapters.integrations.mcp_servers.server_connection import load_package
from ...._adapters.integrations.mcp_servers.spec import ServerSpec
from ...._adapters.integrations.mcp_servers.stored_logins import LOGINS, LoginFile
from ...._platform.connection_limits import ConnectionLimits, LimitedConnections
from ...._platform.time_limits import time_limit
from ....errors import UnknownName, UsageError
from ...output.progress import print_notice
from ..load_settings import load_settings
from ..serve_viewer import can_open_browser
from .load_programs import require_programs

if TYPE_CHECKING:
    from mcp.client.auth import AuthorizationCodeResult

# Seconds the user has to log in.
LOGIN_SECONDS = 600.0
_PAGE = b"<!doctype html><meta charset=utf-8><title>mudroom</title><p>%s"


def log_in(cwd: str, name: str) -> None:
    asyncio.run(_log_in(*_find_server(cwd, name)))


def log_out(cwd: str, name: str) -> None:
    _, file = _find_server(cwd, name)
    if not file.remove():
        raise UsageError(f"there is no login of server {name}")
    print(f"Logged out of {name}. The server itself may keep the login for a while.")


def _find_server(cwd: str, name: str) -> tuple[ServerSpec, LoginFile]:
    settings = load_settings(cwd)
    servers = {spec.name: spec for spec in require_programs(settings, cwd).servers}
    if name not in servers:
        raise UnknownName(
            "MCP server", name, servers, remedy="See why one is not used: mudroom mcp."
        )
    spec = servers[name]
    if spec.transport != "http":
        raise UsageError(
            f"server {name} is a program, which has no login",
            where=spec.origin,
            remedy="Give it what it needs in its variables (env).",
        )
    return spec, LoginFile(os.path.join(settings.home, "mcp", LOGINS), spec.url)


async def _log_in(spec: ServerSpec, file: LoginFile) -> None:
    # The package is slow to import; only a login needs it.
    await load_package()
    from ...._adapters.integrations.mcp_servers import oauth

    async with AsyncExitStack() as stack:
        browser = _Browser()
        redirect = await browser.open(stack, _choose_port(spec, file))
        stored = file.load()
        # A client is registered with its addresses, so a different port needs a new registration.
        if stored and redirect not in _list_redirects(stored.client):
            file.remove()
        is_done = await oauth.log_in(
            spec, file, redirect, browser.show_address, browser.wait_for_code
        )
    print(f"Logged in to {spec.name}." if is_done else f"Server {spec.name} wants no login.")


def _choose_port(spec: ServerSpec, file: LoginFile) -> int:
    """Choose the configured port, or the registered client's; 0 for any."""
    port = spec.oauth.get("callback_port")
    if isinstance(port, int):
        return port
    stored = file.load()
    for uri in _list_redirects(stored.client if stored else None):
        _, _, rest = uri.partition("://127.0.0.1:")
        digits = rest.partition("/")[0]
        if digits.isdecimal():
            return int(digits)
    return 0


def _list_redirects(client: Mapping[str, Any] | None) -> list[str]:
    uris = (client or {}).get("redirect_uris")
    return [str(uri) for uri in cast("list[object]", uris)] if isinstance(uris, list) else []


class _Browser:
    """Sends the user's browser to the server, which sends it back to a port on this machine.

    If the browser is on another machine, the user can paste the address instead.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self._connections = LimitedConnections(limits or ConnectionLimits())
        self._code: asyncio.Future[AuthorizationCodeResult] = (
            asyncio.get_running_loop().create_future()
        )

    async def open(self, stack: AsyncExitStack, port: int) -> str:
        """Listen for the browser until the stack ends; return the redirect address."""
        loop = asyncio.get_running_loop()
        factory = self._connections.limit(self._make_protocol)
        try:
            server = await loop.create_server(factory, "127.0.0.1", port)
        except OSError:  # the earlier login's port is in use
            server = await loop.create_server(factory, "127.0.0.1", 0)
        stack.callback(server.close)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"

    def _make_protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._receive)

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).decode("latin-1").split()
        except (ValueError, ConnectionError):  # longer than any login's address, or cut off
            line = []
        text = b"This is no answer to a login."
        if len(line) > 1 and line[1].startswith("/callback?"):
            text = b"Done. You can close this page and go back to mudroom."
            self._use(f"http://127.0.0.1{line[1]}")
        page = _PAGE % text
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(page) + page)
        writer.close()

    def _use(self, address: str) -> None:
        from ...._adapters.integrations.mcp_servers import oauth

        # The browser and a pasted line may both bring an answer; the first counts.
        if self._code.done():
            return
        try:
            self._code.set_result(oauth.parse_redirect(address))
        except ValueError as error:
            self._code.set_exception(UsageError(f"the login was refused: {error}"))

    async def show_address(self, address: str) -> None:
        print_notice(f"Log in at this address:\n{address}", prefix="")
        if can_open_browser(os.environ):
            await asyncio.to_thread(webbrowser.open, address)
        else:
            print_notice(
                "If the browser is on another machine, paste here the address that it ends at.",
                prefix="",
            )
        _read_lines(self._use)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        """Wait for the server's answer. Raises UsageError after LOGIN_SECONDS."""
        try:
            async with time_limit(LOGIN_SECONDS):
                return await self._code
        except TimeoutError:
            raise UsageError(f"no login within {LOGIN_SECONDS:g} s") from None
        finally:
            _stop_reading()


def _read_lines(use: Callable[[str], object]) -> None:
    if sys.stdin is None or sys.stdin.closed:
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        line = os.read(sys.stdin.fileno(), 1 << 16).decode("utf-8", "replace").strip()
        if not line:
            _stop_reading()
        elif "code=" in line or "error=" in line:
            use(line)
        else:
            print_notice("This address has no code; paste the whole last address.", prefix="")

    with suppress(OSError, ValueError):  # a regular file cannot be waited for
        loop.add_reader(sys.stdin.fileno(), read)


def _stop_reading() -> None:
    with suppress(AttributeError, OSError, ValueError):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
