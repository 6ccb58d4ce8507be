"""The tools of servers as texts: their names for a description, and the result of a search."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from ..._core.tool_names import SERVER_PREFIX
from ..._core.tools import Tool

MAX_CATALOGUE_BYTES = 8_000
"""Bytes of the names in the description of `mcp_find`; with more, it has numbers."""
MAX_HITS = 5
"""Tools in one result of `mcp_find`."""
MAX_TEXT = 2_000
"""Characters of one description, or of the instructions of a server, in a result."""


def get_server(name: str) -> str:
    """Return the server in the name of a tool, or in a pattern."""
    return name.removeprefix(SERVER_PREFIX).partition("__")[0]


def format_catalogue(names: Sequence[str], unlisted: Sequence[str]) -> str:
    """Return the names by server; only their numbers if they are too long."""
    by_server: dict[str, list[str]] = {}
    for name in names:
        server, _, tool = name.removeprefix(SERVER_PREFIX).partition("__")
        by_server.setdefault(server, []).append(tool)
    parts = [f"{server}: {', '.join(tools)}" for server, tools in by_server.items()]
    if len("; ".join(parts).encode()) > MAX_CATALOGUE_BYTES:
        parts = [f"{server}: {len(tools)} tools" for server, tools in by_server.items()]
    parts += [f"{get_server(pattern)}: not listed yet" for pattern in unlisted]
    return "; ".join(parts)


def search(tools: Mapping[str, Tool], query: str) -> list[Tool]:
    """Return the tools that fit a query best: words in the name count more."""
    words = re.findall(r"[a-z0-9]+", query.lower())
    if not words:
        return list(tools.values())[:MAX_HITS]
    scores: list[tuple[int, Tool]] = []
    for tool in tools.values():
        name = tool.name.lower()
        text = tool.description.lower()
        score = sum(3 * (word in name) + (word in text) for word in words)
        if score or name == query.strip().lower():
            scores.append((score, tool))
    scores.sort(key=lambda pair: -pair[0])
    return [tool for _, tool in scores[:MAX_HITS]]


def format_tool(tool: Tool) -> str:
    """Return name, description and parameters of a tool."""
    description = tool.description.strip()[:MAX_TEXT]
    return (
        f"{tool.name}\n{description}\nparameters: {msgspec.json.encode(tool.parameters).decode()}"
    )


def describe_no_hit(tools: Mapping[str, Tool]) -> str:
    """Return a text for a search without a result."""
    if not tools:
        return "There is no such tool."
    return f"No tool fits. There are: {format_catalogue(list(tools), ())}"
