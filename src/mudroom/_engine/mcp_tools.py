"""A run's MCP tools: given to the model in full, or found and called through two tools.

The definitions of many tools would fill the context. So `mcp_find` returns them when the model
looks for one, and `mcp_call` calls it. The engine replaces a call to `mcp_call` with the call it
names before anything else sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec
from msgspec import Struct

from .._core.events import InputAnswered, StoredEvent, ToolCallStarted
from .._core.ports import ApprovalDecision, ApprovalRequest, ToolServers
from .._core.ports.approval import InputForm
from .._core.tool_names import (
    FORWARDING_TOOL,
    SERVER_PREFIX,
    list_server_patterns,
    narrow_server_patterns,
    select_tools,
)
from .._core.tools import Effect, Tool, ToolCategory, ToolResult
from .._projections.engine_text import quote
from ..errors import suggest_names
from .session_context import Recorder, SessionServices

MAX_FULL_BYTES = 4_000
"""Up to this many bytes of definitions, a model gets all; tools its agent names in any case."""

_FIND = (
    "Find tools of MCP servers: returns their descriptions and parameters. Call one with mcp_call."
    " Servers and tools: {catalogue}"
)
_CALL = "Call a tool of an MCP server. Look up its parameters with mcp_find first."


class FindArguments(Struct, frozen=True):
    query: str = ""
    server: str = ""


class McpTools:
    """The MCP tools that a run may use.

    Entries of `tools` that refer to servers are patterns. `servers` is None in a session without
    servers. `offered` are the tools the model gets.
    """

    def __init__(self, tools: Sequence[str], servers: ToolServers | None) -> None:
        self._servers = servers
        self._patterns = list_granted(tools, servers)
        self._shown: dict[str, None] = {}
        self.offered: dict[str, Tool] = self._choose_offered() if self._patterns else {}

    def find(self, name: str) -> Tool | None:
        """Find an MCP tool; None if the run may not use it or it is unknown."""
        if self._servers is None or not select_tools([name], self._patterns):
            return None
        return self._servers.tools.get(name)

    def _list_known(self) -> dict[str, Tool]:
        assert self._servers
        tools = self._servers.tools
        return {name: tools[name] for name in select_tools(tools, self._patterns)}

    def _choose_offered(self) -> dict[str, Tool]:
        assert self._servers
        full_patterns = list_full_patterns(self._patterns, self._servers)
        known = self._list_known()
        full = {name: known[name] for name in select_tools(known, full_patterns)}
        others = {name: tool for name, tool in known.items() if name not in full}
        unlisted = self._servers_to_list()
        size = sum(tool.definition_bytes for tool in others.values())
        if not unlisted and size <= MAX_FULL_BYTES:
            return known
        return {**full, **{tool.name: tool for tool in self._make_tools(others, unlisted)}}

    def _servers_to_list(self) -> list[str]:
        assert self._servers
        return [each for each in self._servers.unlisted if self._may_use(each)]

    def _may_use(self, server: str) -> bool:
        return any(
            fnmatchcase(each, server) or fnmatchcase(server, each) for each in self._patterns
        )

    def _make_tools(self, tools: Mapping[str, Tool], unlisted: Sequence[str]) -> tuple[Tool, Tool]:
        catalogue = format_catalogue(list(tools), unlisted)
        return (
            Tool(
                name="mcp_find",
                description=_FIND.format(catalogue=catalogue),
                parameters=_FIND_PARAMETERS,
                parse=lambda arguments: msgspec.convert(arguments, FindArguments, strict=False),
                run=self._run_find,
                effect=Effect.PURE,
                category=ToolCategory.READ,
                title_argument="query",
            ),
            Tool(
                name=FORWARDING_TOOL,
                description=_CALL,
                parameters=_CALL_PARAMETERS,
                parse=dict,
                run=_refuse,
                forward=self._forward,
            ),
        )

    async def _run_find(self, _: object, arguments: FindArguments) -> ToolResult:
        assert self._servers
        patterns = [each for each in self._patterns if not each.startswith("!")]
        server = arguments.server.removeprefix(SERVER_PREFIX)
        if server:
            pattern = f"{SERVER_PREFIX}{server}__*"
            patterns = [each for each in patterns if fnmatchcase(each, pattern)] or patterns
        missing = await self._servers.load(patterns)
        known = self._list_known()
        if server and any(get_server(name) == server for name in known):
            known = {name: tool for name, tool in known.items() if get_server(name) == server}
        hits = search(known, arguments.query)
        parts = [format_tool(tool) for tool in hits] or [describe_no_hit(known)]
        return ToolResult(
            "\n\n".join((*missing, *self._list_instructions(hits), *parts)),
            error=bool(missing) and not hits,
            display=f"{len(hits)} tools" if hits else "",
        )

    def _list_instructions(self, tools: Sequence[Tool]) -> list[str]:
        """List the instructions of the tools' servers, each once in the run."""
        assert self._servers
        texts: list[str] = []
        for pattern, text in self._servers.instructions.items():
            if pattern in self._shown or not any(fnmatchcase(each.name, pattern) for each in tools):
                continue
            self._shown[pattern] = None
            texts.append(f"Instructions of {get_server(pattern)}: {quote(text[:MAX_TEXT])}")
        return texts

    def _forward(self, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        requested = arguments.get("tool")
        if not isinstance(requested, str) or not requested:
            raise ValueError("tool: is missing")
        inner: object = arguments.get("arguments") or {}
        if isinstance(inner, str):
            try:
                inner = msgspec.json.decode(inner)
            except msgspec.DecodeError:
                pass
        if not isinstance(inner, dict):
            raise ValueError("arguments: is not an object")
        name = requested if requested.startswith(SERVER_PREFIX) else f"{SERVER_PREFIX}{requested}"
        if self.find(name) is None:
            server = get_server(name)
            if f"{SERVER_PREFIX}{server}__*" in self._servers_to_list():
                raise ValueError(
                    f"tool: the tools of server {server} are not known yet. Call mcp_find first."
                )
            hint = suggest_names(name, self._list_known())
            raise ValueError(f"tool: there is no {requested!r}. {hint} Find tools with mcp_find.")
        return name, cast("dict[str, Any]", inner)


class RunTools(dict[str, Tool]):
    """The tools given to a run's model, by name."""

    def __init__(self, own: Mapping[str, Tool], mcp_tools: McpTools) -> None:
        super().__init__(own)
        self.update(mcp_tools.offered)
        self._mcp_tools = mcp_tools

    def find(self, name: str) -> Tool | None:
        """Find a tool the run may call; an MCP tool as its server lists it now."""
        return self._mcp_tools.find(name) or self.get(name)


def list_full_patterns(patterns: Sequence[str], servers: ToolServers) -> tuple[str, ...]:
    """Return the patterns for tools given in full: exact names and certain servers."""
    exclusions = [each for each in patterns if each.startswith("!")]
    chosen = [
        each
        for each in patterns
        if each not in exclusions and ("*" not in each or each in servers.full_patterns)
    ]
    return (*chosen, *exclusions) if chosen else ()


async def _refuse(_: object, arguments: object) -> ToolResult:
    return ToolResult("mcp_call needs the name of a tool of a server.", error=True)


_FIND_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "words of the name or the task"},
        "server": {"type": "string"},
    },
    "required": ["query"],
}
_CALL_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tool": {"type": "string", "description": "name, such as mcp__git__git_log"},
        "arguments": {"type": "object", "description": "as its parameters say"},
    },
    "required": ["tool", "arguments"],
}


MAX_CATALOGUE_BYTES = 8_000  # of names in `mcp_find`'s description; beyond that, only counts
MAX_HITS = 5  # per result of `mcp_find`
MAX_TEXT = 2_000  # characters of a description, or a server's instructions, in a result


def get_server(name: str) -> str:
    return name.removeprefix(SERVER_PREFIX).partition("__")[0]


def format_catalogue(names: Sequence[str], unlisted: Sequence[str]) -> str:
    """List the names by server, or only their counts if that is too long."""
    by_server: dict[str, list[str]] = {}
    for name in names:
        server, _, tool = name.removeprefix(SERVER_PREFIX).partition("__")
        by_server.setdefault(server, []).append(tool)
    parts = [f"{server}: {', '.join(tools)}" for server, tools in by_server.items()]
    if len("; ".join(parts).encode()) > MAX_CATALOGUE_BYTES:
        parts = [f"{server}: {len(tools)} tools" for server, tools in by_server.items()]
    parts += [f"{get_server(pattern)}: not listed yet" for pattern in unlisted]
    return "; ".join(parts)


def search(tools: Mapping[str, Tool], query: str) -> list[Tool]:
    """Return the tools that match a query best; words in the name count more."""
    words = re.findall(r"[a-z0-9]+", query.lower())
    if not words:
        return list(tools.values())[:MAX_HITS]
    scores: list[tuple[int, Tool]] = []
    for tool in tools.values():
        name = tool.name.lower()
        text = tool.description.lower()
        score = sum(3 * (word in name) + (word in text) for word in words)
        if score or name == query.strip().lower():
            scores.append((score, tool))
    scores.sort(key=lambda pair: -pair[0])
    return [tool for _, tool in scores[:MAX_HITS]]


def format_tool(tool: Tool) -> str:
    description = tool.description.strip()[:MAX_TEXT]
    return (
        f"{tool.name}\n{description}\nparameters: {msgspec.json.encode(tool.parameters).decode()}"
    )


def describe_no_hit(tools: Mapping[str, Tool]) -> str:
    if not tools:
        return "There is no such tool."
    return f"No tool fits. There are: {format_catalogue(list(tools), ())}"


class RunServers:
    """The port ToolServers for one run: its own servers and the session's.

    The run's own server shadows one of the session with the same name.

    Attributes:
        own_grants: patterns for the tools of the run's own servers that the agent may use. They are
            not in the brief, so no child of the run gets them.
    """

    def __init__(
        self, own: ToolServers, shared: ToolServers, agent_tools: Sequence[str] | None
    ) -> None:
        self._own = own
        self._shared = shared
        self.own_grants = narrow_server_patterns(own.patterns, agent_tools)

    def _select_shared(self, names: Sequence[str]) -> list[str]:
        """Return the names and patterns not shadowed by the run's own servers."""
        hiding = self._own.patterns
        return [name for name in names if not any(fnmatchcase(name, each) for each in hiding)]

    @property
    def patterns(self) -> tuple[str, ...]:
        return (*self._own.patterns, *self._select_shared(self._shared.patterns))

    @property
    def full_patterns(self) -> tuple[str, ...]:
        return (*self._own.full_patterns, *self._select_shared(self._shared.full_patterns))

    @property
    def unlisted(self) -> tuple[str, ...]:
        return (*self._own.unlisted, *self._select_shared(self._shared.unlisted))

    @property
    def instructions(self) -> Mapping[str, str]:
        return {**self._shared.instructions, **self._own.instructions}

    @property
    def tools(self) -> Mapping[str, Tool]:
        shared = self._shared.tools
        return {
            **self._own.tools,
            **{name: shared[name] for name in self._select_shared(list(shared))},
        }

    async def load(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Load the tools that patterns name; return why some are missing, a line for each."""
        own = await self._own.load(patterns)
        return (*own, *await self._shared.load(self._select_shared(patterns)))

    def open_own(self, agent: str, *, is_root: bool) -> ToolServers | None:
        return self._shared.open_own(agent, is_root=is_root)

    async def close(self) -> None:
        await self._own.close()


def list_granted(tools: Sequence[str], servers: ToolServers | None) -> tuple[str, ...]:
    """Return the patterns of the MCP tools that an agent with these tools may use."""
    if servers is None:
        return ()
    own = servers.own_grants if isinstance(servers, RunServers) else ()
    return (*list_server_patterns(tools), *own)


def list_called_servers(events: Iterable[StoredEvent]) -> list[str]:
    names = (
        get_server(event.call.name)
        for event in events
        if isinstance(event, ToolCallStarted) and event.call.name.startswith(SERVER_PREFIX)
    )
    return list(dict.fromkeys(names))


def list_unknown_servers(
    agent_tools: Sequence[str] | None, servers: ToolServers | None
) -> list[str]:
    """Return a line for each of an agent's tool patterns whose server the run lacks."""
    known = servers.patterns if servers else ()
    lines: list[str] = []
    for pattern in list_server_patterns(agent_tools or ()):
        name = pattern.partition("(")[0]
        server = get_server(name)
        is_known = any(
            fnmatchcase(each, of_server) for each in (name, f"{name}__") for of_server in known
        )
        if not (is_known or name.startswith("!") or "*" in server):
            lines.append(f"{pattern}: there is no MCP server named {server}.")
    return lines


async def ask_approver(
    services: SessionServices, recorder: Recorder, request: ApprovalRequest, form: InputForm
) -> ApprovalDecision:
    """Ask for the answer to a form, and store it."""
    await recorder.record()  # the answer may take hours; the user reads the text before it
    decision = await services.approver.decide(request)
    redact = services.redact
    event = recorder.make_event(
        InputAnswered,
        call_id=request.call_id,
        name=request.tool,
        server=form.server,
        message=redact(form.message),
        allowed=decision.allowed,
        url=redact(form.url),
        why=decision.why,
        values={
            name: redact(value) if isinstance(value, str) else value
            for name, value in (decision.arguments or {}).items()
            if decision.allowed
        },
    )
    await recorder.record(event)
    return decision
