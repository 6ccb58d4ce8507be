"""Server port as the session itself uses it: states of MCP servers for screens, and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from .tools import ToolServers

ServerState = Literal["not started", "starting", "ready", "failed"]


class ServerStatus(Struct, frozen=True):
    """State of one MCP server for screens.

    Arguments:
        state: "not started" until a run needs it, "starting", "ready" or "failed".
        reason: why it failed, "" if it has not.
        tools: number of its tools, None if they are not known yet.
        definition_bytes: bytes of their definitions; models get more than 4,000 only on request.
        protocol: revision of the protocol, "" if it is not known yet.
        pid: id of its process, None if none runs.
        starts: number of starts in this session.
        last_lines: end of its error output.

    Example:
        statuses: tuple[ServerStatus, ...] = session.mcp_servers
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


class SessionServers(ToolServers, Protocol):
    """The servers of a session, in the process that has them."""

    def list_states(self) -> Sequence[ServerStatus]:
        """Return the state of each server."""
        ...

    async def restart(self, name: str) -> None:
        """End a server and start it again; its open calls fail. Raises MudroomError."""
        ...
