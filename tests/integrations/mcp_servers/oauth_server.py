"""A small MCP server with its own login server, over HTTP: prints its port. It ends with its input.

POST /control with JSON {"ttl": seconds, "fail": status, "revoke": true, "needed": scope, "names":
false} changes what it does; the answer counts its requests. Calls of tools need the scope.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import time
from collections import Counter
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

listener = socket.create_server(("127.0.0.1", 0))
PORT = listener.getsockname()[1]
URL = f"http://127.0.0.1:{PORT}"


class Logins(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The login server: everybody is logged in at once. Refresh tokens are used once."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.counts: Counter[str] = Counter()
        self.ttl = 3600
        self.fail = 0
        self.needed = ""
        self.names = True

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.counts["register"] += 1
        client_info.scope = "read write"
        self.clients[client_info.client_id or ""] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        self.counts["authorize"] += 1
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.issue(client.client_id or "", authorization_code.scopes)

    def issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access = AccessToken(
            token=secrets.token_hex(16), client_id=client_id, scopes=scopes, resource=f"{URL}/mcp"
        )
        refresh = RefreshToken(token=secrets.token_hex(16), client_id=client_id, scopes=scopes)
        self.access[access.token] = access
        self.refresh[refresh.token] = refresh
        return OAuthToken(
            access_token=access.token,
            expires_in=self.ttl,
            refresh_token=refresh.token,
            scope=" ".join(scopes),
        )

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.counts["refresh"] += 1
        del self.refresh[refresh_token.token]
        return self.issue(client.client_id or "", refresh_token.scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)


logins = Logins()
server = MCPServer(
    "guarded",
    auth_server_provider=logins,
    auth=AuthSettings(
        issuer_url=URL,  # pyright: ignore[reportArgumentType]
        resource_server_url=f"{URL}/mcp",  # pyright: ignore[reportArgumentType]
        client_registration_options=ClientRegistrationOptions(enabled=True),
        required_scopes=["read"],
        validate_token_resource=False,
    ),
)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.custom_route("/control", methods=["POST"])
async def control(request: Request) -> Response:
    body: dict[str, Any] = await request.json()
    logins.ttl = body.get("ttl", logins.ttl)
    logins.fail = body.get("fail", logins.fail)
    logins.needed = body.get("needed", logins.needed)
    logins.names = body.get("names", logins.names)
    if body.get("revoke"):
        logins.access.clear()
    if body.get("forget"):
        logins.refresh.clear()
    return JSONResponse(logins.counts)


async def main() -> None:
    inner = server.streamable_http_app()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/token" and logins.fail:
            await Response(status_code=logins.fail)(scope, receive, send)
            return
        if logins.needed and scope["type"] == "http":
            headers = Headers(scope=scope)
            token = logins.access.get(headers.get("authorization", "").partition(" ")[2])
            is_call = headers.get("mcp-method") == "tools/call"
            if is_call and token and logins.needed not in token.scopes:
                names = f', scope="{logins.needed}"' if logins.names else ""
                challenge = f'Bearer error="insufficient_scope"{names}'
                refusal = Response(status_code=403, headers={"WWW-Authenticate": challenge})
                await refusal(scope, receive, send)
                return
        await inner(scope, receive, send)

    print(PORT, flush=True)
    running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    asyncio.get_running_loop().add_reader(sys.stdin, lambda: setattr(running, "should_exit", True))
    await running.serve(sockets=[listener])


asyncio.run(main())
