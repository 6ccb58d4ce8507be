"""Control requests about MCP servers: those in the host, and those that mudroom starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mudroom.errors import MudroomError, UnknownName

from .host_tools import HostToolSource
from .hosted_session import HostedSession
from .json_fields import as_object

Answer = Mapping[str, Any]


class ServerRequests:
    """The requests about MCP servers that mudroom answers once the session is open.

    A change holds from the next prompt on, if one runs.

    Arguments:
        make_source: makes the tools of an in-process server of the host, of its name.

    Attributes:
        actions: the function of each request, by subtype.
    """

    def __init__(
        self,
        hosted: HostedSession,
        make_source: Callable[[str], HostToolSource],
    ) -> None:
        self._hosted = hosted
        self._make_source = make_source
        self.actions: dict[str, Callable[[Mapping[str, Any]], Awaitable[Answer]]] = {
            "mcp_status": self._list_servers,
            "mcp_toggle": self._toggle_server,
            "mcp_reconnect": self._reconnect_server,
            "mcp_set_servers": self._set_servers,
            "mcp_message": self._receive_message,
        }

    async def _list_servers(self, _: Mapping[str, Any]) -> Answer:
        return {"mcpServers": await self._hosted.describe_servers()}

    async def _toggle_server(self, request: Mapping[str, Any]) -> Answer:
        name = _read_name(request)
        is_enabled = request.get("enabled") is not False
        source = self._hosted.find_source(name)
        if source:
            source.is_enabled = is_enabled
            source.mark_changed()
            return {}
        self._hosted.enable_server(name, is_enabled=is_enabled)
        await self._hosted.apply()
        return {}

    async def _reconnect_server(self, request: Mapping[str, Any]) -> Answer:
        """Connect to a server again; other servers than those of the host start again."""
        name = _read_name(request)
        source = self._hosted.find_source(name)
        if source is None:
            await self._hosted.restart_server(name)
            return {}
        await source.connect()
        self._hosted.driver.open_later()
        await self._hosted.apply()
        return {}

    async def _set_servers(self, request: Mapping[str, Any]) -> Answer:
        """Replace the servers of earlier requests, and all in-process servers of the host."""
        entries = as_object(request.get("servers"))
        hosted = self._hosted
        before = {**{source.name: None for source in hosted.next_sources}, **hosted.set_entries}
        own = [name for name, entry in entries.items() if as_object(entry).get("type") == "sdk"]
        after = {**entries, **dict.fromkeys(own)}
        added = [name for name, entry in after.items() if before.get(name, ...) != entry]
        sources = [hosted.find_source(name) or self._make_source(name) for name in own]
        others = {name: entries[name] for name in entries if name not in own}
        errors = hosted.set_servers(sources, others)
        await self._hosted.apply()
        if self._hosted.driver.current is None:
            errors |= await self._start([name for name in added if name not in errors])
        removed = [name for name in before if name not in after]
        return {"added": added, "removed": removed, "errors": errors}

    async def _start(self, names: list[str]) -> dict[str, str]:
        """Start servers; return why some do not work, by name."""
        states = await asyncio.gather(*map(self._start_server, names))
        return {name: state for name, state in zip(names, states, strict=True) if state}

    async def _start_server(self, name: str) -> str:
        source = self._hosted.find_source(name)
        if source:
            return source.fault
        try:
            await self._hosted.restart_server(name)
        except MudroomError as error:
            return str(error)
        return ""

    async def _receive_message(self, request: Mapping[str, Any]) -> Answer:
        """Take a notification of an in-process server; it may have other tools now."""
        if as_object(request.get("message")).get("method") == "notifications/tools/list_changed":
            name = _read_name(request)
            source = self._hosted.find_source(name)
            if source is None:
                known = [source.name for source in self._hosted.next_sources]
                raise UnknownName("MCP server of the host", name, known)
            source.mark_changed()
        return {}


def _read_name(request: Mapping[str, Any]) -> str:
    """Return the name of the MCP server that a request is about."""
    return str(request.get("serverName") or request.get("server_name") or "")
