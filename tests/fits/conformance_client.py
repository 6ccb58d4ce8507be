"""Client of the MCP conformance suite: uses all that a server offers, with mudroom's connections.

The suite starts `python conformance_client.py URL`. A server that wants a login gets one, as from
a user whose browser follows the redirect.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from mudroom import ApprovalDecision, ServerSpec
from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, Listing
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection, ServerError
from mudroom._adapters.integrations.mcp_servers.stored_logins import LoginFile
from mudroom.ports import InputForm

CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
VALUES: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}


async def accept(form: InputForm) -> ApprovalDecision:
    """Answer a question with its defaults."""
    return ApprovalDecision(True, arguments={})


def make_arguments(tool: ListedTool, tools: tuple[ListedTool, ...]) -> list[dict[str, Any]]:
    """Return the arguments of the calls of a tool: those of the scenario, or made-up ones."""
    told = [each["arguments"] for each in CONTEXT.get("toolCalls", ()) if each["name"] == tool.name]
    if told:
        return told
    if tool.name == "json_schema_echo":
        return [{"schema": each.parameters} for each in tools if each.name != tool.name]
    properties: dict[str, dict[str, Any]] = tool.parameters.get("properties", {})
    return [
        {
            name: schema.get("default", VALUES.get(str(schema.get("type")), "x"))
            for name, schema in properties.items()
        }
    ]


async def use(connection: Connection, listing: Listing) -> None:
    """Call each tool, get each prompt, and read each resource."""
    for tool in listing.tools:
        for arguments in make_arguments(tool, listing.tools):
            try:
                await connection.call(tool, arguments, str, accept)
            except ServerError as error:
                if "HTTP 40" in str(error):
                    raise
                print(error, file=sys.stderr)
    for prompt in listing.prompts:
        await connection.get_prompt(prompt.name, dict.fromkeys(prompt.arguments, "x"))
    for resource in listing.resources:
        if not resource.is_template:
            await connection.read_resource(resource.uri)


def follow(address: str) -> str:
    """Return the address that a login page redirects to."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return connection.getresponse().getheader("Location") or ""
    finally:
        connection.close()


async def log_in(spec: ServerSpec, file: LoginFile) -> None:
    """Log in to the server."""
    from mudroom._adapters.integrations.mcp_servers import oauth

    targets: list[str] = []

    async def show_address(address: str) -> None:
        targets.append(await asyncio.to_thread(follow, address))

    async def wait_for_code() -> Any:
        return oauth.parse_redirect(targets[-1])

    await oauth.log_in(spec, file, "http://127.0.0.1:9/callback", show_address, wait_for_code)


async def main(url: str, folder: str) -> None:
    """Use the server at an address; log in if it wants a login."""
    named = {name: CONTEXT[name] for name in ("client_id", "client_secret") if name in CONTEXT}
    spec = ServerSpec(
        name="suite",
        origin="suite",
        scope="option",
        transport="http",
        url=url,
        oauth=named,
        start_timeout=200.0,
    )
    for attempt in range(3):
        listings: list[Listing] = []
        connection = Connection(spec, folder, dict(os.environ), listings.append, logins=folder)
        try:
            await connection.open()
            await use(connection, listings[-1])
            return
        except ServerError as error:
            if attempt == 2 or "login" not in str(error):
                raise
        finally:
            await connection.close()
        await log_in(spec, LoginFile(folder, url))


with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(sys.argv[-1], place))
