"""ServerControls: the methods of a session that act on its MCP servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ..._core.ports.servers import ServerPrompt, ServerResource, ServerStatus
from ..._core.tools import Tool
from ..._core.type_checks import check_type
from ...errors import UnknownName
from .runner import SessionRunner


class ServerControls(ABC):
    """States of a session's MCP servers, and restarts."""

    @property
    def mcp_servers(self) -> tuple[ServerStatus, ...]:
        """The session's MCP servers with their states. A server starts when a run needs it.

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

    @property
    def mcp_prompts(self) -> tuple[ServerPrompt, ...]:
        """The prompts of MCP servers that are known now. A server lists them when it starts.

        Example:
            for prompt in session.mcp_prompts:
                print(prompt.name, prompt.arguments)
        """
        servers = self._require_open().resources.mcp_servers
        return tuple(servers.list_prompts()) if servers else ()

    @property
    def mcp_resources(self) -> tuple[ServerResource, ...]:
        """The resources of MCP servers that are known now. A server lists them when it starts.

        Example:
            for resource in session.mcp_resources:
                print(resource.server, resource.uri)
        """
        servers = self._require_open().resources.mcp_servers
        return tuple(servers.list_resources()) if servers else ()

    async def find_mcp_prompt(self, name: str) -> ServerPrompt:
        """Return a prompt of an MCP server; start the server if its prompts are not known yet.

        Arguments:
            name: `mcp__SERVER__PROMPT`.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            print((await session.find_mcp_prompt("mcp__docs__summarize")).required)
        """
        check_type("name", name, str, "find_mcp_prompt")
        servers = self._require_open().resources.mcp_servers
        if servers is None:
            raise UnknownName("prompt", name, ())
        return await servers.find_prompt(name)

    async def get_mcp_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> str:
        """Return the text of a prompt of an MCP server; start the server if it does not run.

        Arguments:
            name: `mcp__SERVER__PROMPT`. arguments: texts by name.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            text = await session.get_mcp_prompt("mcp__docs__summarize", {"topic": "parsers"})
            await session.run(text)
        """
        check_type("name", name, str, "get_mcp_prompt")
        servers = self._require_open().resources.mcp_servers
        if servers is None:
            raise UnknownName("prompt", name, ())
        return await servers.get_prompt(name, arguments or {})

    async def read_mcp_resource(self, server: str, uri: str) -> str:
        """Return the text of a resource of an MCP server; start the server if it does not run.

        Arguments:
            server: name of the server.
            uri: address of the resource, as in `mcp_resources`.

        Raises UnknownName, and MudroomError with the reason if the server cannot be used.

        Example:
            print(await session.read_mcp_resource("docs", "docs://style-guide"))
        """
        check_type("server", server, str, "read_mcp_resource")
        check_type("uri", uri, str, "read_mcp_resource")
        servers = self._require_open().resources.mcp_servers
        if servers is None:
            raise UnknownName("MCP server", server, ())
        return await servers.read_resource(server, uri)

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
