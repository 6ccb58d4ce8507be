"""Tools of servers in worker processes: the session's process has the servers and calls them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..._core.ports import ToolContext, ToolServers
from ..._core.tools import Effect, Tool, ToolResult
from ..._engine.recorder import Recorder
from ..._engine.session_context import SessionServices
from ..._platform.private_files import write_private_file
from .remote_services import SessionLink

LOAD_TOOLS = "load_server_tools"
CALL_TOOL = "call_server_tool"
CANCEL_TOOL = "cancel_server_tool"


class ServerToolSpec(Struct, frozen=True):
    """A tool of a server without its functions."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    confirmation_reason: str


class ServersState(Struct, frozen=True):
    """The servers of a session and their tools that are known now; see `ToolServers`."""

    patterns: tuple[str, ...] = ()
    full_patterns: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    instructions: dict[str, str] = {}
    tools: tuple[ServerToolSpec, ...] = ()


class LoadedTools(Struct, frozen=True):
    """Reply to LOAD_TOOLS. `missing`: why tools are missing."""

    missing: tuple[str, ...]
    state: ServersState


def describe_servers(servers: ToolServers) -> ServersState:
    """Return the present state of the servers."""
    return ServersState(
        servers.patterns,
        servers.full_patterns,
        servers.unlisted,
        dict(servers.instructions),
        tuple(
            ServerToolSpec(
                tool.name, tool.description, tool.parameters, tool.effect, tool.confirmation_reason
            )
            for tool in servers.tools.values()
        ),
    )


class _SpillContext:
    """The parts of a ToolContext that tools of servers use.

    Arguments:
        key: id of the call; see `ToolContext.call_key`.
        show_progress: shows a line of the call on the screens.
    """

    def __init__(self, folder: str, key: str, show_progress: Callable[[str], object]) -> None:
        self._folder = folder
        self._key = key
        self.show_progress = show_progress

    def spill_path(self, name: str) -> str:
        """Create a file that the run can read; return its path."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = Path(self._folder, f"{self._key.replace('#', '-')}-{name}.txt")
        write_private_file(path, b"")
        return str(path)


class ServerCalls:
    """Calls of one worker process to the servers of the session."""

    def __init__(self, services: SessionServices) -> None:
        self._services = services
        self._tasks: dict[str, asyncio.Task[ToolResult]] = {}

    async def load(self, patterns: tuple[str, ...]) -> LoadedTools:
        """Learn the tools that patterns name."""
        assert self._services.servers
        missing = await self._services.servers.load(patterns)
        return LoadedTools(missing, describe_servers(self._services.servers))

    async def call(
        self, key: str, run: str, turn: int, name: str, arguments: dict[str, Any]
    ) -> ToolResult:
        """Call a tool.

        Arguments:
            key: id of the call; see `ToolContext.call_key`.
            run, turn: place of the call, for its progress.
        """
        assert self._services.servers
        tool = self._services.servers.tools.get(name)
        if tool is None:
            return ToolResult(f"{name} does not exist any more.", error=True)
        try:
            parsed = tool.parse_arguments(arguments)
        except ValueError as error:
            return ToolResult(f"Invalid arguments for {name}: {error}", error=True)
        recorder = Recorder(self._services, run)
        recorder.turn = turn

        def show_progress(line: str) -> None:
            recorder.show_delta("progress", self._services.redact(f"{name}: {line}"))

        context = cast(
            "ToolContext", _SpillContext(self._services.spill_folder, key, show_progress)
        )
        task = asyncio.ensure_future(tool.run(context, parsed))
        self._tasks[key] = task
        try:
            return await task
        finally:
            task.cancel()
            del self._tasks[key]

    async def cancel(self, key: str) -> None:
        """Cancel a call."""
        if task := self._tasks.get(key):
            task.cancel()


class RemoteServers:
    """The port ToolServers for a worker process."""

    def __init__(self, link: SessionLink, state: ServersState) -> None:
        self._link = link
        self._use(state)

    def _use(self, state: ServersState) -> None:
        self.patterns = state.patterns
        self.full_patterns = state.full_patterns
        self.unlisted = state.unlisted
        self.instructions: Mapping[str, str] = state.instructions
        self.tools: Mapping[str, Tool] = {spec.name: self._make_tool(spec) for spec in state.tools}

    def _make_tool(self, spec: ServerToolSpec) -> Tool:
        async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
            key = context.call_key
            try:
                result = await self._link.call(
                    CALL_TOOL, key, context.run_id, context.turn, spec.name, arguments
                )
            except asyncio.CancelledError:
                self._link.send_call(CANCEL_TOOL, key)
                raise
            return msgspec.msgpack.decode(result, type=ToolResult)

        return Tool(
            name=spec.name,
            description=spec.description,
            parameters=spec.parameters,
            parse=dict,
            run=run,
            effect=spec.effect,
            confirmation_reason=spec.confirmation_reason,
        )

    async def load(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Learn the tools in the session's process."""
        if not patterns:
            return ()
        reply = await self._link.call(LOAD_TOOLS, tuple(patterns))
        loaded = msgspec.msgpack.decode(reply, type=LoadedTools)
        self._use(loaded.state)
        return loaded.missing

    async def close(self) -> None:
        """Do nothing: the session's process ends the servers."""
