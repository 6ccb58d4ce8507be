"""A small MCP server of the tests, made with the package: `python small_server.py [NAME]`.

With the variable QUIET it does not report that its tools changed.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import zlib
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Image, Resolve
from pydantic import BaseModel

server = MCPServer(
    sys.argv[1] if len(sys.argv) > 1 else "small",
    instructions="Adds numbers.",
    subscriptions=False if "QUIET" in os.environ else None,
)


def make_chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + make_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + make_chunk(b"IDAT", zlib.compress(b"\0\0\0\0"))
    + make_chunk(b"IEND", b"")
)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def grow() -> str:
    """Offer one more tool."""
    server.add_tool(lambda: "grown", "grown", description="A new tool.")
    return "done"


@server.tool()
def pid() -> int:
    """Return the id of the process."""
    return os.getpid()


@server.tool()
def fail(text: str) -> str:
    """Fail with a text."""
    raise ValueError(text)


@server.tool()
def draw() -> Image:
    """Return an image."""
    return Image(data=PNG, format="png")


@server.tool()
async def work(steps: int, seconds: float, ctx: Context) -> str:
    """Work in steps and report progress. Say in a file when the call is cancelled."""
    try:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, "working")
            await asyncio.sleep(seconds)
    except BaseException:
        with open(os.environ["CANCELLED"], "w") as file:
            file.write("cancelled")
        raise
    return "worked"


@server.tool()
def host(ctx: Context) -> str:
    """Return what the host declares that it can do."""
    declared = ctx.client_capabilities
    return declared.model_dump_json(exclude_none=True) if declared else "{}"


class Choice(BaseModel):
    """What the user chooses."""

    color: str
    count: int = 2


def ask() -> Elicit[Choice]:
    """Ask the user."""
    return Elicit("Which color?", Choice)


@server.tool()
def paint(choice: Annotated[Choice, Resolve(ask)]) -> str:
    """Paint in the color that the user chooses."""
    return f"{choice.count} times {choice.color}"


@server.tool()
def die() -> str:
    """End the process without an answer."""
    print("about to die", file=sys.stderr, flush=True)
    os.kill(os.getpid(), 9)
    return ""


server.run()
