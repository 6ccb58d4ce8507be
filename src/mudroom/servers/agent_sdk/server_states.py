"""States of the MCP servers of a session, with the fields that the SDKs know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._core.ports.servers import ServerState, ServerStatus
from ..._core.tool_names import make_server_pattern
from ..._core.tools import Tool
from .host_tools import HostToolSource

_STATES: dict[ServerState, str] = {
    "not started": "pending",
    "starting": "pending",
    "ready": "connected",
    "failed": "failed",
}
_SCOPES = {"option": "dynamic", "": "dynamic"}
"""Names of the SDKs for servers of a flag; other scopes have the same name."""


def describe_source(source: HostToolSource) -> dict[str, Any]:
    """Return the state of an in-process server of the host."""
    return {
        "name": source.name,
        "status": _find_source_state(source),
        "scope": "dynamic",
        "config": {"type": "sdk", "name": source.name},
        "tools": [{"name": name} for name in source.tool_names],
        **({"serverInfo": source.server_info} if source.server_info else {}),
        **({"error": source.fault} if source.fault else {}),
    }


def describe_servers(
    statuses: Sequence[ServerStatus], tools: Sequence[Tool], scopes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the states of the other servers.

    Their configuration is left out: its headers and variables are often secrets.

    Arguments:
        tools: those that are known, of all servers.
        scopes: where each server is configured; one without a status is turned off.
    """
    if not (statuses or scopes):
        return []
    names = [status.name for status in statuses]
    prefixes = {make_server_pattern(name).removesuffix("*"): name for name in names}
    tools_by_server: dict[str, list[dict[str, str]]] = {}
    for tool in tools:
        prefix = max(filter(tool.name.startswith, prefixes), key=len, default="")
        entry = {"name": tool.name[len(prefix) :], "description": tool.description}
        tools_by_server.setdefault(prefixes.get(prefix, ""), []).append(entry)
    disabled = [
        {"name": name, "status": "disabled", "scope": _SCOPES.get(scope, scope)}
        for name, scope in scopes.items()
        if name not in names
    ]
    return disabled + [
        {
            "name": status.name,
            "status": "needs-auth" if status.needs_login else _STATES[status.state],
            "scope": _SCOPES.get(scope := scopes.get(status.name, ""), scope),
            **({} if status.tools is None else {"tools": tools_by_server.get(status.name, [])}),
            **({"error": status.reason} if status.reason else {}),
        }
        for status in statuses
    ]


def _find_source_state(source: HostToolSource) -> str:
    if not source.is_enabled:
        return "disabled"
    return "failed" if source.fault else "connected"
