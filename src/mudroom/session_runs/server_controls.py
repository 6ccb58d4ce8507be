"""ServerControls: the methods of a session that act on its MCP servers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .._core.ports.servers import ServerStatus
from .._core.tools import Tool
from .._core.type_checks import check_type
from ..errors import UnknownName
from .runner import SessionRunner


class ServerControls(ABC):
    """States of the MCP servers of a session, and restarts."""

    @property
    def mcp_servers(self) -> tuple[ServerStatus, ...]:
        """The MCP servers of the session with their states. A server starts when a run needs it.

        Example:
            for status in session.mcp_servers:
                print(status.name, status.state, status.reason)
        """
        servers = self._require_open().resources.mcp_servers
        return tuple(servers.list_states()) if servers else ()

    @property
    def mcp_tools(self) -> tuple[Tool, ...]:
        """The tools of MCP servers that are known now. A server lists them when it starts.

        Example:
            for tool in session.mcp_tools:
                print(tool.name, tool.description)
        """
        servers = self._require_open().resources.mcp_servers
        return tuple(servers.tools.values()) if servers else ()

    async def restart_mcp_server(self, name: str) -> None:
        """End an MCP server and start it again, also one that failed. Its open calls fail.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            await session.restart_mcp_server("git")
        """
        check_type("name", name, str, "restart_mcp_server")
        servers = self._require_open().resources.mcp_servers
        known = [status.name for status in servers.list_states()] if servers else []
        if servers is None or name not in known:
            raise UnknownName("MCP server", name, known)
        await servers.restart(name)

    @abstractmethod
    def _require_open(self) -> SessionRunner:
        """Return the runner of the session. Raises UsageError if the session is not open."""
