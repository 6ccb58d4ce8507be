"""HostedSession: the session of a host, which opens it again when the host changes its options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from msgspec.structs import replace

from ..._core.agents import Mode
from ..._core.ports import HookCallback
from ..._core.ports.servers import ServerState, ServerStatus
from ..._core.tool_names import make_server_pattern
from ..._core.tools import Tool
from ..._session.session import Session
from ...errors import MudroomError, UnknownName, UsageError
from ...permissions.rules import Permissions, Rule
from ..file_prompts import FilePrompt
from .approver import HostApprover
from .host_tools import HostToolSource
from .output import HostOutput
from .resume_point import ResumePoint
from .setup import PlannedSession, PrepareSession, ServerOptions, SessionParts, SessionPlan


class HostedSession:
    """One conversation, over all sessions that it is opened as.

    Arguments:
        notify: takes a line for stderr.
    """

    def __init__(
        self,
        prepare: PrepareSession,
        options: ServerOptions,
        approver: HostApprover,
        hooks: Mapping[str, Sequence[HookCallback]],
        output: HostOutput,
        plan: SessionPlan,
        notify: Callable[[str], object],
    ) -> None:
        self._has_run = options.resumes
        self._resume_point = ResumePoint(options.resumes_at) if options.resumes_at else None
        self._prepare = prepare
        self._options = options
        self._approver = approver
        self._parts = SessionParts(approver=approver, hooks=hooks)
        self._output = output
        self._plan = plan
        self._notify = notify
        self._stack = AsyncExitStack()
        self._opened_plan = plan
        self._must_open = False
        self._opening = asyncio.Lock()
        self._planned: PlannedSession | None = None

    @property
    def sources(self) -> Sequence[HostToolSource]:
        """The in-process servers of the open session."""
        return self._opened_plan.sources

    @property
    def next_sources(self) -> Sequence[HostToolSource]:
        """The in-process servers from the next prompt on."""
        return self._plan.sources

    @property
    def session(self) -> Session:
        """The open session."""
        return self._get_planned().session

    @property
    def outputs(self) -> dict[str, Any] | None:
        """Schema of the answers; None for text."""
        return self._get_planned().outputs

    @property
    def permissions(self) -> Permissions:
        """The permissions of the session."""
        return self._get_planned().permissions

    def load_prompts(self) -> dict[str, FilePrompt]:
        """Return the prompts of files by name, as they are now."""
        return {prompt.name: prompt for prompt in self._get_planned().load_prompts()}

    async def open(self) -> None:
        """Open the session. Raises UsageError, JournalError; then it is closed again."""
        planned = self._prepare(self._plan, self._parts)
        session = planned.session
        if self._resume_point:
            session.watch_history(self._resume_point.observe)
        await self._stack.enter_async_context(session)
        self._planned = planned
        self._opened_plan = self._plan
        if self._resume_point:
            await self._apply_resume_point(session, self._resume_point)
        for notice in filter(None, session.notices):
            self._notify(notice)
        self._approver.start_session(
            planned.permissions,
            session.cwd,
            self._options.user_home,
            tier=session.sandbox.tier,
        )
        self._output.servers = self.list_servers
        self._output.attach(session)

    async def _apply_resume_point(self, session: Session, point: ResumePoint) -> None:
        try:
            session.notices.append(await point.apply(session))
        except UsageError:
            await self._stack.aclose()
            raise

    def begin_prompt(self) -> None:
        """Note that the record has a prompt of this process from now on."""
        self._has_run = True
        self._resume_point = None

    async def apply_changes(self) -> None:
        """Open the session again if its options have changed since.

        If that is not possible, open it as it was and raise the error.
        """
        async with self._opening:
            await self._apply_changes()

    async def _apply_changes(self) -> None:
        if self._plan == self._opened_plan and not self._must_open:
            for source in self.sources:
                await source.settle()
            return
        previous = self._opened_plan
        try:
            await self._open_again()
        except MudroomError:
            self._plan = previous
            await self._open_again()
            raise

    def open_later(self) -> None:
        """Open the session again before the next prompt: a server that failed works now."""
        self._must_open = True

    async def _open_again(self) -> None:
        self._must_open = False
        session_id = self.session.id
        resume = session_id if self._has_run else self._plan.resume
        self._plan = replace(self._plan, resume=resume, id="" if resume else session_id)
        await self._stack.aclose()
        await self.open()

    async def close(self) -> None:
        """Close the session, if it is open."""
        await self._stack.aclose()

    def set_model(self, model: str) -> None:
        """Use a model from the next prompt on; "" for that of the flags."""
        self._plan = replace(self._plan, model="" if model == "default" else model)

    def set_mode(self, mode: str) -> None:
        """Use a permission mode; a wider one at once for the calls that the host decides.

        Raises UnknownName, or UsageError if settings forbid the mode.
        """
        if mode not in list(Mode):
            raise UnknownName("permission mode", mode, [each.value for each in Mode])
        plan = replace(self._plan, mode=mode)
        self._prepare(plan, self._parts)
        self._plan = plan
        self._approver.mode = Mode(mode)

    @property
    def set_entries(self) -> Mapping[str, Any]:
        """The MCP servers of the last `mcp_set_servers`, without those in the host, by name."""
        return self._plan.servers

    def set_servers(
        self, sources: Sequence[HostToolSource], others: Mapping[str, Any]
    ) -> dict[str, str]:
        """Use other MCP servers from the next prompt on.

        Return why some cannot be used, by name.

        Arguments:
            sources: those in the host. others: entries in the form of `.mcp.json`, by name.
        """
        names = [*self._plan.replaced_servers, *(each.name for each in sources), *others]
        replaced = tuple(dict.fromkeys(names))
        plan = replace(
            self._plan, sources=tuple(sources), servers=dict(others), replaced_servers=replaced
        )
        errors = self._prepare(plan, self._parts).servers.errors
        self._plan = plan
        return dict(errors)

    def enable_server(self, name: str, *, is_enabled: bool) -> None:
        """Use an MCP server outside the host, or do not, from the next prompt on.

        Raises UnknownName.
        """
        known = self._prepare(self._plan, self._parts).servers.scopes
        if name not in known:
            sources = [each.name for each in self.next_sources]
            raise UnknownName("MCP server", name, [*sources, *known])
        others = [each for each in self._plan.disabled_servers if each != name]
        disabled = others if is_enabled else [*others, name]
        self._plan = replace(self._plan, disabled_servers=tuple(disabled))

    def find_source(self, name: str) -> HostToolSource | None:
        """Return an in-process server of the host: the next one of this name, or the open one."""
        sources = (*self.next_sources, *self.sources)
        return next((source for source in sources if source.name == name), None)

    def stop_turn(self, *, keeps_background: bool) -> bool:
        """Stop the prompt. Return False if none works.

        Arguments:
            keeps_background: leave its background work alone.
        """
        with suppress(UsageError):  # it is being opened again
            return self.session.interrupt() if keeps_background else self.session.cancel()
        return False

    def pause(self) -> bool:
        """Stop all work so that a later process continues it. Return False if none works."""
        with suppress(UsageError):  # it is being opened again
            return self.session.pause()
        return False

    def add_rules(self, rules: tuple[Rule, ...]) -> None:
        """Use deny and ask rules from the next prompt on."""
        self._plan = replace(self._plan, rules=(*self._plan.rules, *rules))

    def list_servers(self) -> list[dict[str, Any]]:
        """Return names and states of all MCP servers, as `system/init` lists them."""
        fields = ("name", "status")
        return [{field: server[field] for field in fields} for server in self._describe_servers()]

    async def describe_servers(self) -> list[dict[str, Any]]:
        """Return all that is known about the MCP servers, when the session is open."""
        async with self._opening:
            return self._describe_servers()

    async def restart_server(self, name: str) -> None:
        """Start an MCP server again. Raises UnknownName, and MudroomError if it cannot be used."""
        async with self._opening:
            session = self.session
        known = [status.name for status in session.mcp_servers]
        if name not in known:
            raise UnknownName("MCP server", name, [*(each.name for each in self.sources), *known])
        await session.restart_mcp_server(name)

    def _describe_servers(self) -> list[dict[str, Any]]:
        own = [describe_source(source) for source in self.sources]
        names = [source.name for source in self.sources]
        session = self.session
        scopes = self._get_planned().servers.scopes
        others = describe_servers(session.mcp_servers, session.mcp_tools, scopes)
        return [*own, *(each for each in others if each["name"] not in names)]

    def _get_planned(self) -> PlannedSession:
        assert self._planned
        return self._planned


_STATES: dict[ServerState, str] = {
    "not started": "pending",
    "starting": "pending",
    "ready": "connected",
    "failed": "failed",
}
_SCOPES = {"option": "dynamic", "": "dynamic"}
"""Names of the SDKs for servers of a flag; other scopes have the same name."""


def describe_source(source: HostToolSource) -> dict[str, Any]:
    """Return the state of an in-process server of the host."""
    return {
        "name": source.name,
        "status": _find_source_state(source),
        "scope": "dynamic",
        "config": {"type": "sdk", "name": source.name},
        "tools": [{"name": name} for name in source.tool_names],
        **({"serverInfo": source.server_info} if source.server_info else {}),
        **({"error": source.fault} if source.fault else {}),
    }


def describe_servers(
    statuses: Sequence[ServerStatus], tools: Sequence[Tool], scopes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the states of the other servers.

    Their configuration is left out: its headers and variables are often secrets.

    Arguments:
        tools: those that are known, of all servers.
        scopes: where each server is configured; one without a status is turned off.
    """
    if not (statuses or scopes):
        return []
    names = [status.name for status in statuses]
    prefixes = {make_server_pattern(name).removesuffix("*"): name for name in names}
    tools_by_server: dict[str, list[dict[str, str]]] = {}
    for tool in tools:
        prefix = max(filter(tool.name.startswith, prefixes), key=len, default="")
        entry = {"name": tool.name[len(prefix) :], "description": tool.description}
        tools_by_server.setdefault(prefixes.get(prefix, ""), []).append(entry)
    disabled = [
        {"name": name, "status": "disabled", "scope": _SCOPES.get(scope, scope)}
        for name, scope in scopes.items()
        if name not in names
    ]
    return disabled + [
        {
            "name": status.name,
            "status": "needs-auth" if status.needs_login else _STATES[status.state],
            "scope": _SCOPES.get(scope := scopes.get(status.name, ""), scope),
            **({} if status.tools is None else {"tools": tools_by_server.get(status.name, [])}),
            **({"error": status.reason} if status.reason else {}),
        }
        for status in statuses
    ]


def _find_source_state(source: HostToolSource) -> str:
    if not source.is_enabled:
        return "disabled"
    return "failed" if source.fault else "connected"
