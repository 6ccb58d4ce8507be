"""MCP servers as the session uses them: their states, prompts, resources, and restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from ..tools import ToolResult
from .tools import ToolServers

ServerState = Literal["not started", "starting", "ready", "failed"]


class ServerStatus(Struct, frozen=True):
    """The state of an MCP server, for screens.

    Arguments:
        state: "not started" until a run needs it, "starting", "ready" or "failed".
        reason: why it failed, "" otherwise.
        tools: number of its tools, None if not known yet.
        definition_bytes: size of their definitions; above 4,000 bytes, models get them only on
            request.
        protocol: revision of the protocol, "" if not known yet.
        pid: id of its process, None if none is running.
        starts: number of starts in this session.
        last_lines: the end of its error output.
        needs_login: true if it failed because it wants a login or a token.
        left_out: why tools, prompts or resources of it are not used, "" if all are.

    Example:
        statuses: tuple[ServerStatus, ...] = session.mcp.servers
        print([status.name for status in statuses if status.state == "failed"])
    """

    name: str
    state: ServerState
    reason: str = ""
    tools: int | None = None
    definition_bytes: int = 0
    protocol: str = ""
    pid: int | None = None
    starts: int = 0
    last_lines: str = ""
    needs_login: bool = False
    left_out: str = ""


class ServerPrompt(Struct, frozen=True):
    """A prompt of an MCP server, for users.

    Arguments:
        name: `mcp__SERVER__PROMPT`.
        arguments: names of its arguments.
        required: names of those that must be given.

    Example:
        prompts: tuple[ServerPrompt, ...] = session.mcp.prompts
        print([prompt.name for prompt in prompts])
    """

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class ServerResource(Struct, frozen=True):
    """A resource of an MCP server, for users.

    Arguments:
        server: name of the server.
        uri: address of the resource on the server.
        title: title for users, "" if the server gives none.
        is_template: true if `uri` is a template (RFC 6570) for several addresses, such as
            `docs://pages/{name}`.

    Example:
        resources: tuple[ServerResource, ...] = session.mcp.resources
        print([f"@{resource.server}:{resource.uri}" for resource in resources])
    """

    server: str
    uri: str
    title: str = ""
    is_template: bool = False

    @property
    def mention(self) -> str:
        """Text that follows "@" in a prompt; a template is cut at its first variable."""
        uri = self.uri.partition("{")[0] if self.is_template else self.uri
        return f"{self.server}:{uri}"


class SessionServers(ToolServers, Protocol):
    """The servers of a session, in the process that runs them."""

    def list_prompts(self) -> Sequence[ServerPrompt]: ...

    def list_resources(self) -> Sequence[ServerResource]: ...

    async def find_prompt(self, name: str) -> ServerPrompt:
        """Find a prompt, starting its server if needed. Raises UnknownName, MudroomError."""
        ...

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> str: ...

    async def read_resource(self, server: str, uri: str) -> str: ...

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool, by its name on the server, outside a run. Starts the server if needed."""
        ...

    def list_states(self) -> Sequence[ServerStatus]: ...

    async def restart(self, name: str) -> None:
        """Stop a server and start it again; calls in progress fail. Raises MudroomError."""
        ...
