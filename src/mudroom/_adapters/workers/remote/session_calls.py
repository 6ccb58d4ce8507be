"""Calls from a worker process to the session: journal, approver, hooks, output checks, tools.

Tools of MCP servers, and tools given as objects, exist only in the session's process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast, get_args, get_type_hints

import msgspec
from msgspec import Struct

from ...._core.events import StoredEvent
from ...._core.json_values import make_binary_decoder
from ...._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Hooks,
    Journal,
    ToolContext,
    ToolServers,
)
from ...._core.ports.approval import InputForm
from ...._core.tools import Effect, Tool, ToolCategory, ToolResult, ToolView, find_no_key
from ...._engine.call_context import CallContext
from ...._engine.mcp_tools import ask_approver
from ...._engine.session_context import Recorder, SessionServices
from ...._engine.structured_output import OutputChecks, OutputRefusal
from ...._engine.team_registry import TeamReply, TeamRequest, Teams
from ...._engine.tool_calls import run_tool
from ...._peers import encode
from ...._platform.private_files import make_spill_file
from .messages import CallReply, CallSession
from .remote_services import SessionLink
from .tree_transfer import TREE_ARGUMENTS, TravellingFiles, list_targets

LOAD_TOOLS = "load_mcp_tools"
CALL_TOOL = "call_server_tool"


class ServerToolSpec(Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    is_parallel: bool
    confirmation_reason: str


class ServersState(Struct, frozen=True):
    """A session's servers and their tools known so far; see `ToolServers`."""

    patterns: tuple[str, ...] = ()
    full_patterns: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    instructions: dict[str, str] = {}
    tools: tuple[ServerToolSpec, ...] = ()


class LoadedTools(Struct, frozen=True):
    missing: tuple[str, ...]
    state: ServersState


def describe_servers(servers: ToolServers) -> ServersState:
    tools = list(servers.tools.values())
    return ServersState(
        servers.patterns,
        servers.full_patterns,
        servers.unlisted,
        dict(servers.instructions),
        msgspec.convert(tools, tuple[ServerToolSpec, ...], from_attributes=True),
    )


class CallPlace(Struct, frozen=True):
    """A call made by a worker process, and its run.

    `key` is `ToolContext.call_key`; `name` is the run's.
    """

    key: str
    call_id: str
    arguments: dict[str, Any]
    run: str
    turn: int
    agent: str
    name: str


class _CallContext:
    """The parts of a ToolContext used by servers' tools, in the session's process."""

    def __init__(self, services: SessionServices, place: CallPlace, tool: str) -> None:
        self._services = services
        self._place = place
        self._tool = tool
        self._recorder = Recorder(services, place.run)
        self._recorder.turn = place.turn

    @property
    def traceparent(self) -> str:
        ids = self._services.trace_ids
        return ids.make_call_traceparent(self._place.run, self._place.call_id) if ids else ""

    def show_progress(self, line: str) -> None:
        self._recorder.show_delta("progress", self._services.redact(f"{self._tool}: {line}"))

    async def ask_user(self, form: InputForm) -> ApprovalDecision:
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
        place = self._place.key.replace("#", "-")
        return make_spill_file(self._services.spill_folder, f"{place}-{name}")


class ServerCalls:
    """A worker process's calls to the session's servers."""

    def __init__(self, services: SessionServices) -> None:
        self._services = services

    async def load(self, patterns: tuple[str, ...]) -> LoadedTools:
        assert self._services.servers
        missing = await self._services.servers.load(patterns)
        return LoadedTools(missing, describe_servers(self._services.servers))

    async def call(self, place: CallPlace, name: str, arguments: dict[str, Any]) -> ToolResult:
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
    """Make a function for `Tool.run` that has the session's process call the named tool."""

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        call = cast("CallContext", context).call
        place = CallPlace(
            context.call_key,
            call.id if call else "",
            call.arguments if call else {},
            context.run_id,
            context.turn,
            context.agent_name,
            context.run_name,
        )
        result = await link.call(CALL_TOOL, place, name, arguments)
        return msgspec.msgpack.decode(result, type=ToolResult)

    return run


class RemoteServers:
    """The port ToolServers for a worker process. Servers of a single agent run here."""

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
        run = make_remote_run(spec.name, self._link)
        return Tool(**msgspec.structs.asdict(spec), parse=dict, run=run)

    async def load(self, patterns: Sequence[str]) -> tuple[str, ...]:
        if not patterns:
            return ()
        reply = await self._link.call(LOAD_TOOLS, tuple(patterns))
        loaded = msgspec.msgpack.decode(reply, type=LoadedTools)
        self._use(loaded.state)
        return loaded.missing

    def open_own(self, agent: str, *, is_root: bool) -> ToolServers | None:
        return self._open_own(agent)

    async def close(self) -> None: ...


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

    It cannot if the tool uses its run's files or memory, or has a function that decides something
    before the call.
    """
    has_functions = tool.adapt or tool.forward or tool.make_reminder or tool.propose
    return not (tool.uses_context or has_functions or tool.get_key is not find_no_key)


def describe_tools(tools: Sequence[Tool]) -> list[SessionToolSpec]:
    own = [tool for tool in tools if not tool.reference]
    return msgspec.convert(own, list[SessionToolSpec], from_attributes=True)


def make_session_tool(spec: SessionToolSpec, link: SessionLink) -> Tool:
    return Tool(
        **msgspec.structs.asdict(spec),
        parse=dict,
        run=make_remote_run(spec.name, link),
        uses_context=False,
    )


Target = Callable[..., Awaitable[Any]]
"""A service of the session."""

_decode = msgspec.msgpack.decode
_HOOKS = {
    name: tuple(get_type_hints(getattr(Hooks, name)).values())
    for name in vars(Hooks)
    if not name.startswith(("_", "on_session_"))
}
"""Hook functions that runs call: the types of their arguments and, last, of their result."""

_FIND_REFUSAL = "find_refusal"
_SEND_TO_TEAM = "send_to_team"
_ARGUMENTS: dict[str, Any] = {
    "read": tuple[int, tuple[str, ...]],
    "decide": tuple[ApprovalRequest],
    **{name: tuple[*kinds[:-1]] for name, kinds in _HOOKS.items()},
    _FIND_REFUSAL: tuple[str, dict[str, Any]],
    _SEND_TO_TEAM: tuple[TeamRequest],
    LOAD_TOOLS: tuple[tuple[str, ...]],
    CALL_TOOL: tuple[CallPlace, str, dict[str, Any]],
    **TREE_ARGUMENTS,
}
STORING_CALLS = frozenset({_SEND_TO_TEAM, *TREE_ARGUMENTS})
"""Calls that store or send finished work: they complete even if the process is lost."""
_DECODERS = {name: make_binary_decoder(types) for name, types in _ARGUMENTS.items()}


class SessionCalls:
    """A worker process's calls to services of the session.

    `owns` tells whether the process executes a run or one above it.
    """

    def __init__(
        self, services: SessionServices, files: TravellingFiles, owns: Callable[[str], bool]
    ) -> None:
        self.files = files
        self._services = services
        tools = ServerCalls(services)
        self._targets: dict[str, Target] = {
            LOAD_TOOLS: tools.load,
            CALL_TOOL: tools.call,
            "read": partial(_read, services.journal),
            "decide": services.approver.decide,
            _FIND_REFUSAL: services.output_checks.find_refusal,
            _SEND_TO_TEAM: services.teams.send,
            **list_targets(files.transfers, owns, self),
        }

    async def execute(self, call: CallSession) -> CallReply:
        target = self._targets.get(call.name) or getattr(self._services.hooks, call.name)
        arguments = _DECODERS[call.name].decode(call.arguments)
        return CallReply(call.id, encode(await target(*arguments)))


async def _read(journal: Journal, after: int, names: tuple[str, ...]) -> list[StoredEvent]:
    types = [kind for kind in get_args(StoredEvent) if kind.__name__ in names]
    return [event async for event in journal.read(after, types=types)]


class RemoteHooks(Hooks):
    """Hooks for a worker process: each function makes the session's process call its own."""

    def __init__(self, link: SessionLink) -> None:
        for name, kinds in _HOOKS.items():
            setattr(self, name, _make_remote_hook(link, name, kinds[-1]))


def _make_remote_hook(link: SessionLink, name: str, kind: type[Any]) -> Target:
    async def call(*arguments: object) -> object:
        return _decode(await link.call(name, *arguments), type=kind)

    return call


class RemoteOutputChecks(OutputChecks):
    def __init__(self, link: SessionLink) -> None:
        super().__init__()
        self._link = link

    async def find_refusal(self, run_id: str, values: dict[str, Any]) -> OutputRefusal | None:
        return _decode(
            await self._link.call(_FIND_REFUSAL, run_id, values), type=OutputRefusal | None
        )


class RemoteTeams(Teams):
    """Teams for a worker process; the teams of runs in the session's process stay there."""

    def __init__(self, link: SessionLink) -> None:
        super().__init__()
        self._link = link

    async def send(self, request: TeamRequest) -> TeamReply:
        """Send a message through the parent's team, in its process."""
        if self.get(request.parent):
            return await super().send(request)
        return _decode(await self._link.call(_SEND_TO_TEAM, request), type=TeamReply)
