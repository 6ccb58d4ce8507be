"""Calls of tools that the session's process executes for runs in worker processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from ...._core.ports import ApprovalDecision, ApprovalRequest, ToolContext, ToolServers
from ...._core.ports.approval import InputForm
from ...._core.tools import Effect, Tool, ToolCategory, ToolResult, ToolView, find_no_key
from ...._engine.call_context import CallContext
from ...._engine.mcp_tools import ask_approver
from ...._engine.session_context import Recorder, SessionServices
from ...._engine.tool_calls import run_tool
from ...._platform.private_files import make_spill_file
from .remote_services import SessionLink

LOAD_TOOLS = "load_server_tools"
CALL_TOOL = "call_server_tool"


class ServerToolSpec(Struct, frozen=True):
    """A tool of a server without its functions."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    is_parallel: bool
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
                tool.name,
                tool.description,
                tool.parameters,
                tool.effect,
                tool.is_parallel,
                tool.confirmation_reason,
            )
            for tool in servers.tools.values()
        ),
    )


class CallPlace(Struct, frozen=True):
    """The call that a worker process makes, and its run.

    Arguments:
        key: id of the call; see `ToolContext.call_key`.
        call_id, arguments: of the call of the model.
        agent, name: of the run.
    """

    key: str
    call_id: str
    arguments: dict[str, Any]
    run: str
    turn: int
    agent: str
    name: str


class _CallContext:
    """The parts of a ToolContext that tools of servers use, in the session's process."""

    def __init__(self, services: SessionServices, place: CallPlace, tool: str) -> None:
        self._services = services
        self._place = place
        self._tool = tool
        self._recorder = Recorder(services, place.run)
        self._recorder.turn = place.turn

    @property
    def traceparent(self) -> str:
        """Header `traceparent` for requests of the call, "" without traces."""
        ids = self._services.trace_ids
        return ids.make_call_traceparent(self._place.run, self._place.call_id) if ids else ""

    def show_progress(self, line: str) -> None:
        """Show a line of the call on the screens."""
        self._recorder.show_delta("progress", self._services.redact(f"{self._tool}: {line}"))

    async def ask_user(self, form: InputForm) -> ApprovalDecision:
        """Ask the user a question for the call."""
        place = self._place
        request = ApprovalRequest(
            place.run,
            place.agent,
            self._tool,
            place.arguments,
            form.message,
            place.call_id,
            name=place.name,
            form=form,
        )
        return await ask_approver(self._services, self._recorder, request, form)

    def spill_path(self, name: str) -> str:
        """Create a file that the run can read; return its path."""
        place = self._place.key.replace("#", "-")
        return make_spill_file(self._services.spill_folder, f"{place}-{name}")


class ServerCalls:
    """Calls of one worker process to the servers of the session."""

    def __init__(self, services: SessionServices) -> None:
        self._services = services

    async def load(self, patterns: tuple[str, ...]) -> LoadedTools:
        """Learn the tools that patterns name."""
        assert self._services.servers
        missing = await self._services.servers.load(patterns)
        return LoadedTools(missing, describe_servers(self._services.servers))

    async def call(self, place: CallPlace, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool of a server, or one of the caller."""
        servers = self._services.servers
        tool = servers.tools.get(name) if servers else None
        tool = tool or self._services.toolbox.get(name)
        if tool is None:
            return ToolResult(f"{name} does not exist any more.", error=True)
        try:
            parsed = tool.parse_arguments(arguments)
        except ValueError as error:
            return ToolResult(f"Invalid arguments for {name}: {error}", error=True)
        context = cast("ToolContext", _CallContext(self._services, place, name))
        return await run_tool(tool, context, parsed)


def make_remote_run(
    name: str, link: SessionLink
) -> Callable[[ToolContext, dict[str, Any]], Awaitable[ToolResult]]:
    """Return a function for `Tool.run` that has the session's process call a tool of this name."""

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        place = _describe_place(context)
        result = await link.call(CALL_TOOL, place, name, arguments)
        return msgspec.msgpack.decode(result, type=ToolResult)

    return run


class RemoteServers:
    """The port ToolServers for a worker process.

    Arguments:
        open_own: returns the servers that only one agent has; they run here.
    """

    def __init__(
        self,
        link: SessionLink,
        state: ServersState,
        open_own: Callable[[str], ToolServers | None],
    ) -> None:
        self._link = link
        self._open_own = open_own
        self._use(state)

    def _use(self, state: ServersState) -> None:
        self.patterns = state.patterns
        self.full_patterns = state.full_patterns
        self.unlisted = state.unlisted
        self.instructions: Mapping[str, str] = state.instructions
        self.tools: Mapping[str, Tool] = {spec.name: self._make_tool(spec) for spec in state.tools}

    def _make_tool(self, spec: ServerToolSpec) -> Tool:
        return Tool(
            name=spec.name,
            description=spec.description,
            parameters=spec.parameters,
            parse=dict,
            run=make_remote_run(spec.name, self._link),
            effect=spec.effect,
            is_parallel=spec.is_parallel,
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

    def open_own(self, agent: str, *, is_root: bool) -> ToolServers | None:
        """Return the servers that only runs of this agent have, for one run; see the port."""
        return self._open_own(agent)

    async def close(self) -> None:
        """Do nothing: the session's process ends the servers."""


def _describe_place(context: ToolContext) -> CallPlace:
    call = cast("CallContext", context).call
    return CallPlace(
        context.call_key,
        call.id if call else "",
        call.arguments if call else {},
        context.run_id,
        context.turn,
        context.agent_name,
        context.run_name,
    )


class SessionToolSpec(Struct, frozen=True, kw_only=True):
    """A tool without its functions; see Tool for the fields."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    is_parallel: bool
    argument_aliases: dict[str, str]
    ignored_arguments: frozenset[str]
    needs_confirmation: bool
    confirmation_reason: str
    category: ToolCategory | None
    path_argument: str
    is_search: bool
    rule_argument: str
    title_argument: str
    view: ToolView
    preview_lines: int
    needs_children: bool
    offered_to: Literal["all", "root", "request"]
    keeps_results: bool


def is_sendable(tool: Tool) -> bool:
    """Return whether the session's process can execute a tool for runs in other processes.

    It cannot if the tool uses the files or the memory of its run, or decides something by a
    function before the call.
    """
    has_functions = tool.adapt or tool.forward or tool.make_reminder or tool.propose
    return not (tool.uses_context or has_functions or tool.get_key is not find_no_key)


def describe_tools(tools: Sequence[Tool]) -> list[SessionToolSpec]:
    """Return the tools that the session's process executes, without their functions."""
    own = [tool for tool in tools if not tool.reference]
    return msgspec.convert(own, list[SessionToolSpec], from_attributes=True)


def make_session_tool(spec: SessionToolSpec, link: SessionLink) -> Tool:
    """Return a tool whose calls the session's process executes."""
    return Tool(
        **msgspec.structs.asdict(spec),
        parse=dict,
        run=make_remote_run(spec.name, link),
        uses_context=False,
    )
