"""A small MCP server over HTTP: prints its port. `python http_server.py` ends with its input."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from starlette.types import Receive, Scope, Send

server = MCPServer("http")
TOKEN = b"Bearer secret"


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def work(steps: int, ctx: Context[Any]) -> str:
    """Work in steps and report progress."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, "working")
    return "worked"


async def main() -> None:
    inner = server.streamable_http_app()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != TOKEN:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await inner(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error")
    running = uvicorn.Server(config)
    asyncio.get_running_loop().add_reader(sys.stdin, lambda: setattr(running, "should_exit", True))
    await running.serve(sockets=[listener])


asyncio.run(main())
