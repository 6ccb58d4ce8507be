"""The MCP servers that an agent file lists under `mcpServers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from ..._core.json_values import JsonValue
from ..._core.tool_names import make_server_pattern, parse_tool_pattern
from .tools_field import parse_names

# A server's configuration, as in `.mcp.json`.
Entry = Mapping[str, JsonValue]


def parse_servers(value: JsonValue) -> dict[str, Entry | None]:
    """Return an agent's servers by name; None for one that the session has.

    The value is a list of names and of maps from names to configurations, one such map, or names
    with commas between them. Raises ValueError for anything else.
    """
    items = value if isinstance(value, list) else [value]
    servers: dict[str, Entry | None] = {}
    for item in items:
        if isinstance(item, dict):
            for name, entry in item.items():
                servers[_check_name(name)] = _check_entry(name, entry)
        else:
            servers |= dict.fromkeys(parse_names(item))
    return servers


def _check_name(name: str) -> str:
    if not name.strip():
        raise ValueError("has a server without a name")
    return name.strip()


def _check_entry(name: str, entry: JsonValue) -> Entry | None:
    """Return the configuration; None if there is only a name."""
    if entry is None or entry is True:
        return None
    if not isinstance(entry, dict):
        raise ValueError(f"{name} is no map of settings")
    return cast("Entry", entry)


def add_server_patterns(
    tools: tuple[str, ...] | None, servers: Iterable[str]
) -> tuple[str, ...] | None:
    """Return an agent's tool patterns, together with patterns for its servers."""
    if tools is None:
        return None
    included = [pattern for pattern in map(parse_tool_pattern, tools) if not pattern.is_excluded]
    # If the file names some tools of a server, those are enough.
    missing = [
        pattern
        for pattern in map(make_server_pattern, servers)
        if not any(
            each.tool.startswith(pattern.removesuffix("*")) or each.matches_tool(pattern)
            for each in included
        )
    ]
    return (*tools, *missing)
