"""Servers that only the runs of one agent have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakSet

from msgspec.structs import replace

from ..._core.ports import SessionServers
from .spec import ServerSpec


class OwnServers:
    """Servers of agents: each run of the agent has processes of its own.

    Arguments:
        specs: configurations that name an agent. make: returns servers with these configurations.

    Attributes:
        of_root: servers of root runs, by agent; they stay open for the next prompt.
    """

    def __init__(
        self, specs: Sequence[ServerSpec], make: Callable[[Sequence[ServerSpec]], SessionServers]
    ) -> None:
        self.of_root: dict[str, SessionServers] = {}
        self._make = make
        self._specs: dict[str, list[ServerSpec]] = {}
        for spec in specs:
            self._specs.setdefault(spec.agent, []).append(replace(spec, agent=""))
        self._opened: WeakSet[SessionServers] = WeakSet()

    def open(self, agent: str, *, is_root: bool) -> SessionServers | None:
        """Return the servers for one run of an agent, None if it has none of its own."""
        if agent not in self._specs:
            return None
        if is_root and agent in self.of_root:
            return self.of_root[agent]
        servers = self._make(self._specs[agent])
        self._opened.add(servers)
        if is_root:
            self.of_root[agent] = servers
        return servers

    def find(self, name: str) -> SessionServers | None:
        """Return the servers of a root run with one of this name, None for none."""
        return next(
            (
                servers
                for agent, servers in self.of_root.items()
                if any(spec.name == name for spec in self._specs[agent])
            ),
            None,
        )

    async def close(self) -> None:
        """End the servers of all runs."""
        await asyncio.gather(*(servers.close() for servers in list(self._opened)))
