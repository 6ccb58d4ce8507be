"""HostedSession: a host's session, with the choices the host makes along the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from mudroom import Mode, Session, Tool
from mudroom.driving import Notice, SessionDriver, SessionStart
from mudroom.errors import UnknownName
from mudroom.permissions import Rule
from mudroom.ports import HookCallback, ServerStatus
from mudroom.views import get_claude_state

from ..file_prompts import FilePrompt
from .approver import HostApprover
from .host_tools import HostToolSource
from .output import HostOutput
from .resume_point import ResumePoint
from .setup import PlannedSession, PrepareSession, SdkOptions, SdkSessionPlan, SessionParts


class HostedSession:
    """One conversation, across all sessions opened for it, and its host's choices.

    The driver's plan holds the choices, which apply from the next prompt on.
    """

    _planned: PlannedSession

    def __init__(
        self,
        prepare: PrepareSession,
        options: SdkOptions,
        approver: HostApprover,
        hooks: Mapping[str, Sequence[HookCallback]],
        output: HostOutput,
        plan: SdkSessionPlan,
        notify: Callable[[str], object],
    ) -> None:
        self.driver = SessionDriver(
            self._make_session,
            plan,
            questions=approver.questions,
            on_open=self._begin,
            resumes=options.resumes,
        )
        self._resume_point = ResumePoint(options.resumes_at) if options.resumes_at else None
        self._prepare = prepare
        self._approver = approver
        self._parts = SessionParts(approver=approver.questions, hooks=hooks)
        self._output = output
        self._notify = notify
        self._opened_plan = plan
        self._is_fresh = False

    @property
    def sources(self) -> Sequence[HostToolSource]:
        """The open session's in-process servers."""
        return self._opened_plan.sources

    @property
    def next_sources(self) -> Sequence[HostToolSource]:
        """The in-process servers from the next prompt on."""
        return self.driver.plan.sources

    @property
    def outputs(self) -> dict[str, Any] | None:
        """Schema of answers; None for text."""
        return self._planned.outputs

    def load_prompts(self) -> dict[str, FilePrompt]:
        return {prompt.name: prompt for prompt in self._planned.load_prompts()}

    def list_styles(self) -> Sequence[str]:
        return self._planned.list_styles()

    async def open(self) -> None:
        await self.driver.__aenter__()

    async def close(self) -> None:
        await self.driver.__aexit__()

    def _make_session(self, plan: SdkSessionPlan, start: SessionStart) -> Session:
        if start.id is not None:
            plan = replace(plan, **{"resume": "", "id": "", **start.options})
        planned = self._prepare(plan, self._parts)
        if self._resume_point:
            planned.session.watch_history(self._resume_point.observe)
        self._planned = planned
        self._opened_plan = plan
        self._is_fresh = start.id is not None
        return planned.session

    async def _begin(self, session: Session) -> None:
        if self._resume_point and (text := await self._resume_point.apply(session)):
            session.notices.append(Notice("record", text))
        for notice in session.notices:
            self._notify(notice.text)
        self._approver.start_session(session)
        self._output.servers = self.list_servers
        self._output.attach(session)

    def begin_prompt(self) -> None:
        """Note that the record now has a prompt from this process."""
        self._resume_point = None

    async def apply(self) -> None:
        """Apply changed choices now or, if a prompt is running, at the next one."""
        await self.driver.apply_plan()
        if self.driver.current is None:
            await self.settle()

    async def settle(self) -> None:
        """Wait until the session has the latest tools of the host's own servers.

        A reopened session has just listed them.
        """
        if not self._is_fresh:
            for source in self.sources:
                await source.settle()
        self._is_fresh = False

    def set_model(self, model: str) -> None:
        """Use a model from the next prompt on; "" for that from the flags."""
        self._change_plan(model="" if model == "default" else model)

    def set_mode(self, mode: str) -> None:
        """Use a permission mode; a wider one applies at once to calls the host decides."""
        if mode not in list(Mode):
            raise UnknownName("permission mode", mode, [each.value for each in Mode])
        plan = replace(self.driver.plan, mode=mode)
        self._prepare(plan, self._parts)
        self.driver.plan = plan
        self._approver.questions.mode = Mode(mode)

    def set_servers(
        self, sources: Sequence[HostToolSource], others: Mapping[str, Any]
    ) -> dict[str, str]:
        """Use servers in the host, and others as in `.mcp.json`, from the next prompt on.

        Return why some cannot be used, by name.
        """
        plan = self.driver.plan
        names = [*plan.replaced_servers, *(each.name for each in sources), *others]
        replaced = tuple(dict.fromkeys(names))
        plan = replace(
            plan, sources=tuple(sources), servers=dict(others), replaced_servers=replaced
        )
        errors = self._prepare(plan, self._parts).servers.errors
        self.driver.plan = plan
        return dict(errors)

    def enable_server(self, name: str, *, is_enabled: bool) -> None:
        """Turn an MCP server outside the host on or off, from the next prompt on."""
        plan = self.driver.plan
        known = self._prepare(plan, self._parts).servers.scopes
        if name not in known:
            sources = [each.name for each in self.next_sources]
            raise UnknownName("MCP server", name, [*sources, *known])
        others = [each for each in plan.disabled_servers if each != name]
        disabled = others if is_enabled else [*others, name]
        self._change_plan(disabled_servers=tuple(disabled))

    def find_source(self, name: str) -> HostToolSource | None:
        """Find an in-process server of the host: the next one with this name, or the open one."""
        sources = (*self.next_sources, *self.sources)
        return next((source for source in sources if source.name == name), None)

    def add_rules(self, rules: tuple[Rule, ...]) -> None:
        """Use deny and ask rules from the next prompt on."""
        self._change_plan(rules=(*self.driver.plan.rules, *rules))

    def _change_plan(self, **changes: Any) -> None:
        self.driver.plan = replace(self.driver.plan, **changes)

    def list_servers(self) -> list[dict[str, Any]]:
        fields = ("name", "status")
        servers = self._describe_servers(self.driver.session)
        return [{field: server[field] for field in fields} for server in servers]

    async def describe_servers(self) -> list[dict[str, Any]]:
        return self._describe_servers(await self.driver.get_session())

    async def restart_server(self, name: str) -> None:
        session = await self.driver.get_session()
        known = [status.name for status in session.mcp.servers]
        if name not in known:
            raise UnknownName("MCP server", name, [*(each.name for each in self.sources), *known])
        await session.mcp.restart(name)

    def _describe_servers(self, session: Session) -> list[dict[str, Any]]:
        own = [describe_source(source) for source in self.sources]
        names = [source.name for source in self.sources]
        scopes = self._planned.servers.scopes
        others = describe_servers(session.mcp.servers, session.mcp.tools, scopes)
        return [*own, *(each for each in others if each["name"] not in names)]


_SCOPES = {"option": "dynamic", "": "dynamic"}
"""The SDKs' names for servers from flags; other scopes have the same name."""


def describe_source(source: HostToolSource) -> dict[str, Any]:
    status = "failed" if source.fault else "connected"
    return {
        "name": source.name,
        "status": status if source.is_enabled else "disabled",
        "scope": "dynamic",
        "config": {"type": "sdk", "name": source.name},
        "tools": [{"name": name} for name in source.tool_names],
        **({"serverInfo": source.server_info} if source.server_info else {}),
        **({"error": source.fault} if source.fault else {}),
    }


def describe_servers(
    statuses: Sequence[ServerStatus], tools: Sequence[Tool], scopes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Describe the states of servers outside the host.

    Their configuration is left out, because its headers and variables are often secrets. A server
    with a scope (where it is configured) but no status is turned off.
    """
    if not (statuses or scopes):
        return []
    names = [status.name for status in statuses]
    # The session's names for a server's tools begin like this.
    prefixes = {f"mcp__{re.sub('[^A-Za-z0-9_-]', '_', name)}__": name for name in names}
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
            "status": get_claude_state(status),
            "scope": _SCOPES.get(scope := scopes.get(status.name, ""), scope),
            **({} if status.tools is None else {"tools": tools_by_server.get(status.name, [])}),
            **({"error": status.reason} if status.reason else {}),
        }
        for status in statuses
    ]
