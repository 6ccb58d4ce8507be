"""A small MCP server of the old era over HTTP, in the process of the test: it keeps sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from mudroom import ServerSpec

SESSION = "Mcp-Session-Id"
LISTS = {
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "review"}]},
}


class OldHttpServer:
    """Server whose sessions a test can end.

    Arguments:
        has_body: whether a refusal says why in JSON, as some servers do.

    Attributes:
        url: its address. sessions: ids of the open ones.
        calls: ids of the sessions of the calls that were carried out.
        forgets_before: method whose request finds that the server has forgotten its sessions, once.
        before_call: awaited before a call is carried out; what it returns is the answer.
    """

    def __init__(self, *, has_body: bool) -> None:
        self.url = ""
        self.sessions: set[str] = set()
        self.greetings = 0
        self.calls: list[str] = []
        self.before_call: Callable[[], Any] | None = None
        self.forgets_all = False
        self.forgets_before = ""
        self._has_body = has_body

    def make_spec(self) -> ServerSpec:
        return ServerSpec(name="web", origin="test", scope="option", transport="http", url=self.url)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        method, number = message["method"], message.get("id")
        if method == "initialize":
            return self._greet(message)
        if method == self.forgets_before:
            self.forgets_before = ""
            self.sessions.clear()
        session = request.headers.get(SESSION, "")
        if not session:
            return web.Response(status=400, text="no session")
        if session not in self.sessions:
            error = {"code": -32600, "message": "Session not found"}
            body = {"jsonrpc": "2.0", "id": "server-error", "error": error}
            return (
                web.json_response(body, status=404) if self._has_body else web.Response(status=404)
            )
        if number is None:
            return web.Response(status=202)
        if method in LISTS:
            return self._send(number, LISTS[method])
        if method == "tools/call":
            return await self._call(number, session)
        error = {"code": -32601, "message": "method not found"}
        return web.json_response({"jsonrpc": "2.0", "id": number, "error": error})

    async def _call(self, number: object, session: str) -> web.StreamResponse:
        answer = await self.before_call() if self.before_call else None
        if answer is not None:
            return answer
        self.calls.append(session)
        return self._send(number, {"content": [{"type": "text", "text": session}]})

    def _greet(self, message: dict[str, Any]) -> web.Response:
        self.greetings += 1
        session = f"s{self.greetings}"
        if not self.forgets_all:
            self.sessions.add(session)
        result: dict[str, Any] = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "prompts": {}},
            "serverInfo": {"name": "old", "version": "1"},
        }
        response = self._send(message["id"], result)
        response.headers[SESSION] = session
        return response

    def _send(self, number: object, result: object) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": result})


@asynccontextmanager
async def serve_old(
    *, has_body: bool = False, make: type[OldHttpServer] = OldHttpServer
) -> AsyncGenerator[OldHttpServer]:
    """Run the server at a free port. `make`: a kind of it that a test has changed."""
    server = make(has_body=has_body)
    app = web.Application()
    app.router.add_route("*", "/mcp", server.answer)
    async with TestServer(app) as running:
        server.url = str(running.make_url("/mcp"))
        yield server
