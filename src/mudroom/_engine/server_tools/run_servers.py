"""The servers of a run whose agent has servers of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from ..._core.events import StoredEvent, ToolCallStarted
from ..._core.ports import ToolServers
from ..._core.tool_names import SERVER_PREFIX
from ..._core.tool_patterns import list_server_patterns, narrow_server_patterns
from ..._core.tools import Tool


class RunServers:
    """The port ToolServers for one run: its own servers, and those of the session.

    A server of its own hides one of the session that has the same name.

    Arguments:
        own: servers that only this run uses. shared: those of the session.
        agent_tools: tool patterns of the agent.

    Attributes:
        own_grants: patterns of the tools of its own servers that the agent may use. They are not
            in the brief, so no child of the run gets them.
    """

    def __init__(
        self, own: ToolServers, shared: ToolServers, agent_tools: Sequence[str] | None
    ) -> None:
        self._own = own
        self._shared = shared
        self.own_grants = narrow_server_patterns(own.patterns, agent_tools)

    def _select_shared(self, names: Sequence[str]) -> list[str]:
        """Return the names and patterns that no server of its own hides."""
        hiding = self._own.patterns
        return [name for name in names if not any(fnmatchcase(name, each) for each in hiding)]

    @property
    def patterns(self) -> tuple[str, ...]:
        """Pattern of the tools of each server."""
        return (*self._own.patterns, *self._select_shared(self._shared.patterns))

    @property
    def full_patterns(self) -> tuple[str, ...]:
        """Patterns of the servers whose tools models always get in full."""
        return (*self._own.full_patterns, *self._select_shared(self._shared.full_patterns))

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Patterns of the servers whose tools are not known yet."""
        return (*self._own.unlisted, *self._select_shared(self._shared.unlisted))

    @property
    def instructions(self) -> Mapping[str, str]:
        """Instructions of the servers, by pattern."""
        return {**self._shared.instructions, **self._own.instructions}

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that are known now, by name."""
        shared = self._shared.tools
        return {
            **self._own.tools,
            **{name: shared[name] for name in self._select_shared(list(shared))},
        }

    async def load(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Learn the tools that patterns name; return why some are missing, a line for each."""
        own = await self._own.load(patterns)
        return (*own, *await self._shared.load(self._select_shared(patterns)))

    def open_own(self, agent: str, *, is_root: bool) -> ToolServers | None:
        """Return the servers that only runs of this agent have; see the port."""
        return self._shared.open_own(agent, is_root=is_root)

    async def close(self) -> None:
        """End its own servers."""
        await self._own.close()


def list_granted(tools: Sequence[str], servers: ToolServers | None) -> tuple[str, ...]:
    """Return the patterns of the tools of servers that a run may use.

    Arguments:
        tools: those of the brief. servers: those of the run.
    """
    if servers is None:
        return ()
    own = servers.own_grants if isinstance(servers, RunServers) else ()
    return (*list_server_patterns(tools), *own)


def list_called_servers(events: Iterable[StoredEvent]) -> list[str]:
    """Return the names of the servers whose tools a run has called, in the order of its calls."""
    names = (
        event.call.name.removeprefix(SERVER_PREFIX).partition("__")[0]
        for event in events
        if isinstance(event, ToolCallStarted) and event.call.name.startswith(SERVER_PREFIX)
    )
    return list(dict.fromkeys(names))


def list_unknown_servers(
    agent_tools: Sequence[str] | None, servers: ToolServers | None
) -> list[str]:
    """Return a line for each tool pattern of an agent whose server the run does not have."""
    known = servers.patterns if servers else ()
    lines: list[str] = []
    for pattern in list_server_patterns(agent_tools or ()):
        name = pattern.partition("(")[0]
        server = name.removeprefix("mcp__").partition("__")[0]
        is_known = any(
            fnmatchcase(each, of_server) for each in (name, f"{name}__") for of_server in known
        )
        if not (is_known or name.startswith("!") or "*" in server):
            lines.append(f"{pattern}: there is no MCP server named {server}.")
    return lines
