"""MCP servers over streamable HTTP, of the new and of the old era."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import ServerSpec
from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, Listing
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection, ServerError
from mudroom._adapters.integrations.mcp_servers.servers import McpServers
from mudroom._adapters.integrations.mcp_servers.stored_logins import LoginFile, StoredLogin
from mudroom._adapters.output_filters import Redactor

from ...waiting import block_until


@contextmanager
def serve() -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """Run the server; yield its address and its process."""
    command = [sys.executable, str(Path(__file__).with_name("http_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.kill()


def make_spec(url: str, **more: Any) -> ServerSpec:
    return ServerSpec(name="web", origin="test", scope="option", transport="http", url=url, **more)


async def test_calls_progress_logins_and_the_end_over_http(tmp_path: Path) -> None:
    with serve() as (url, process):
        listings: list[Listing] = []
        lines: list[str] = []

        def connect(environ: dict[str, str], **more: Any) -> Connection:
            return Connection(make_spec(url, **more), str(tmp_path), environ, listings.append)

        missing = connect({}, bearer_token_variable="WEB_TOKEN")
        with pytest.raises(ServerError, match="the variable WEB_TOKEN is not set"):
            await missing.open()
        wrong = connect({}, headers_helper='echo \'{"Authorization": "Bearer wrong"}\'')
        with pytest.raises(ServerError, match="HTTP 401: it wants a login"):
            await wrong.open()
        helped = connect({}, headers_helper='echo \'{"Authorization": "Bearer secret"}\'')
        await helped.open()
        await asyncio.gather(missing.close(), wrong.close(), helped.close())

        connection = connect({"WEB_TOKEN": "secret"}, bearer_token_variable="WEB_TOKEN")
        result = await connection.call(ListedTool("add", "", {}), {"a": 1, "b": 2}, print)
        assert result.content[0].text == "3"
        await connection.call(ListedTool("work", "", {}), {"steps": 2}, lines.append)
        assert lines == ["1 of 2: working", "2 of 2: working"]
        assert listings[0].protocol == "2026-07-28"
        process.kill()
        block_until(lambda: process.poll() is not None)
        with pytest.raises(ServerError, match="server web"):
            await connection.call(ListedTool("add", "", {}), {"a": 1, "b": 2}, print)
        await connection.close()


async def test_secrets_of_a_helper_and_of_a_login_are_replaced_in_errors(tmp_path: Path) -> None:
    header, token, secret = "helper-1a2b3c4d", "access-9f8e7d6c", "client-5e6f7a8b"
    printed = '{"Authorization": "Bearer secret", "X-Pass": "HEADER"}'.replace("HEADER", header)
    with serve() as (url, _):
        login = StoredLogin(url, tokens={"access_token": token}, client={"client_secret": secret})
        LoginFile(str(tmp_path / "logins"), url).store(login)
        servers = McpServers(
            [make_spec(url, headers_helper=f"echo '{printed}'")],
            folder=str(tmp_path),
            environ=dict(os.environ),
            cache_folder=str(tmp_path),
            is_allowed=bool,
            parse_image=lambda _: "it is none",
            make_redact=Redactor,
        )
        try:
            with pytest.raises(ServerError) as caught:
                await servers.read_resource("web", f"unknown://{header}/{token}/{secret}")
        finally:
            await servers.close()
    error = str(caught.value)
    assert "$LOGIN_ACCESS_TOKEN]/[redacted: $LOGIN_CLIENT_SECRET]" in error
    assert not [each for each in (header, token, secret) if each in error]
