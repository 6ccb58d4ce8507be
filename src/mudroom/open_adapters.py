"""Adapters that a session and its worker processes open, and the environments of their runs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ._core.agents import Agent, WorkspaceKind, WorkspaceSpec
from ._core.listings import ListingLimits, choose_description_length
from ._core.ports import Environment, Journal, Model, Sandbox, SessionStore, Workspace
from ._core.tool_patterns import parse_tool_pattern
from ._core.tools import Tool, ToolCategory
from ._engine.changes.versions import FileVersions, find_versions_folder
from ._engine.children.task_tool import list_agents, make_task_tool
from ._engine.run_tools import RUN_TOOLS
from .agent_files import Skill
from .errors import UsageError
from .options import SessionOptions
from .permissions.policy import RulePolicy
from .permissions.rules import Permissions, Verdict
from .tools import make_builtin_tools

_NO_LIMITS = ListingLimits()


def collect_tools(
    own: Sequence[Tool],
    agents: Mapping[str, Agent],
    skills: Mapping[str, Skill],
    *,
    ask: bool,
    limits: ListingLimits = _NO_LIMITS,
) -> dict[str, Tool]:
    """Return the built-in tools and those of the caller, by name.

    Arguments:
        own: tools of the caller. ask: true if each command needs confirmation.
        limits: what descriptions may list.
    """
    listed_skills = [
        (skill.name, skill.description) for skill in skills.values() if not skill.is_hidden
    ]
    listed_agents = list_agents(agents)
    # The names of agents are also the values of an argument.
    names = sum(len(name) + 4 for name, _ in listed_agents)
    length = choose_description_length([*listed_agents, *listed_skills], limits.characters - names)
    task = make_task_tool(agents, models=limits.models, length=length)
    tools = {**make_builtin_tools(), "task": task, **RUN_TOOLS}
    if ask:
        for name, tool in tools.items():
            if tool.category is ToolCategory.RUN:
                tools[name] = replace(tool, needs_confirmation=True)
    if listed_skills:
        from .tools.skill import make_skill_tool

        tools["skill"] = make_skill_tool(skills, length=length)
    tools.update((tool.name, tool) for tool in own)
    return tools


def make_web_tools(permissions: Permissions, *, allow_net: bool) -> tuple[Tool, ...]:
    """Return `web_fetch` and `web_search`, each if the network or a rule allows it.

    An allow rule for an IP address, such as `WebFetch(domain:127.0.0.1)`, allows that address even
    if it is not public.
    """
    tools: list[Tool] = []
    if allow_net or _allows_search(permissions):
        from .tools.web_search import make_web_search_tool

        tools.append(make_web_search_tool())
    allowed = [
        rule
        for rule in permissions.rules
        if rule.verdict is Verdict.ALLOW and rule.names("web_fetch")
    ]
    if not allow_net and not allowed:
        return tuple(tools)
    from .output_filters.injection_marker import mark_page
    from .tools.web_fetch import make_web_fetch_tool

    domains = [rule.pattern.removeprefix("domain:").strip() for rule in allowed]
    return (make_web_fetch_tool(mark_page, domains), *tools)


def _allows_search(permissions: Permissions) -> bool:
    """Return whether a rule allows all web searches."""
    return any(
        rule.verdict is Verdict.ALLOW and not rule.pattern and rule.names("web_search")
        for rule in permissions.rules
    )


def explain_missing_search(agent: Agent, model: Model, options: SessionOptions) -> list[str]:
    """Return why an agent that asks for `web_search` does not get it; nothing if it does.

    An agent asks if its file or an allow rule names the tool.
    """
    is_allowed = _allows_search(options.permissions)
    is_named = any(parse_tool_pattern(text).tool == "web_search" for text in agent.tools or ())
    if not is_allowed and not is_named:
        return []
    if not is_allowed and not options.allow_net:
        reason = "use --allow-net, or the allow rule WebSearch"
    elif "web_search" not in getattr(model, "server_tools", ()):
        reason = f"mudroom knows no web search of {model.name}"
    elif not is_allowed and options.permissions.can_ask:
        reason = "the provider does not ask before a search; the allow rule WebSearch permits it"
    else:
        return []
    return [f"web_search is not available: {reason}"]


def open_workspace(folder: str, *readable: str, copied_from: str = "") -> Workspace:
    """Open a folder as a workspace.

    Arguments:
        readable: folders outside it. copied_from: see SharedWorkspace.
    """
    from .workspaces.shared import SharedWorkspace

    return SharedWorkspace(folder, readable=readable, copied_from=copied_from)


def open_store(store: SessionStore | None, home: str) -> SessionStore:
    """Return the caller's store, or the session files below the state folder."""
    if store is not None:
        return store
    from .journals import sessions

    return sessions.open_store(home)


async def open_journal(options: SessionOptions, home: str) -> Journal:
    """Open the journal that the options name."""
    if not isinstance(options.journal, str):
        return options.journal
    if options.journal == "memory":
        from .journals.memory import MemoryJournal

        return MemoryJournal()
    store = open_store(options.store, home)
    if options.resume and not options.fork:
        return await store.open(options.id)
    return await store.create(options.id)


def open_versions(options: SessionOptions, home: str) -> FileVersions | None:
    """Open the earlier contents of files; None for a session that leaves nothing in `home`."""
    if options.journal != "sqlite" or options.store is not None:
        return None
    return FileVersions(find_versions_folder(home, options.id))


class EnvironmentFactory(Struct, frozen=True, kw_only=True):
    """Factory of environments: opens folders with the options of a session.

    Arguments:
        home: mudroom's state folder. user_home: the user's home.
        sandbox: see `SessionOptions.sandbox`. can_ask: true if a user can approve commands.
        readable: folders outside the workspace that may be read.
    """

    permissions: Permissions
    home: str
    user_home: str
    sandbox: str | Sandbox
    allow_net: bool
    can_ask: bool
    readable: tuple[str, ...]

    def open(
        self,
        folder: str,
        notices: list[str],
        *,
        spec: WorkspaceSpec = WorkspaceSpec(),  # noqa: B008  (immutable)
        workspace: Workspace | None = None,
        copied_from: str = "",
    ) -> Environment:
        """Open a folder.

        Arguments:
            notices: messages for the user are added here. copied_from: see SharedWorkspace.
            workspace: the caller's own workspace in place of the folder.
        """
        sandbox = self.sandbox
        if isinstance(sandbox, str):
            sandbox = self._open_sandbox(sandbox, folder, notices)
        workspace = workspace or open_workspace(folder, *self.readable, copied_from=copied_from)
        policy = RulePolicy(
            self.permissions,
            workspace=workspace.root,
            user_home=self.user_home,
            tools=make_builtin_tools(),
            tier=lambda: sandbox.tier,
        )
        return Environment(spec=spec, workspace=workspace, sandbox=sandbox, policy=policy)

    def _open_sandbox(self, mode: str, folder: str, notices: list[str]) -> Sandbox:
        from .sandboxes.choose import SandboxRequest, choose_sandbox

        request = SandboxRequest(
            workspace=folder,
            mode=mode,
            home=self.home,
            environ=os.environ,
            network=self.allow_net,
            can_ask=self.can_ask,
        )
        sandbox, notice = choose_sandbox(request)
        if notice:
            notices.append(notice)
        return sandbox

    def open_copy(self, folder: str, copied_from: str) -> Environment:
        """Open a copy of a folder."""
        spec = WorkspaceSpec(WorkspaceKind.FOLDER, folder)
        return self.open(folder, [], spec=spec, copied_from=copied_from)


OpenCopy = Callable[[str, str], Environment]
"""Function that opens a copy: takes its absolute path and the path of the original folder."""


class SessionEnvironments:
    """The port Environments for one session.

    Arguments:
        shared: the environment of the session; its owner closes it.
        open_copy: opens the environment of a copy. None: the session has only the shared one.
    """

    def __init__(self, shared: Environment, open_copy: OpenCopy | None = None) -> None:
        self.shared = shared
        self._open_copy = open_copy

    @asynccontextmanager
    async def open(self, spec: WorkspaceSpec) -> AsyncGenerator[Environment]:
        """Open the environment of a run.

        The copy of a run is removed when the run ends. Raises WorkspaceError if it cannot be made.
        """
        if spec.kind is WorkspaceKind.SHARED:
            yield self.shared
            return
        if self._open_copy is None:
            raise UsageError(
                "this session cannot copy its folder",
                remedy="Use an agent that works in the shared folder.",
            )
        stack = ExitStack()
        stop = threading.Event()
        try:
            prepare = asyncio.to_thread(self._prepare, spec, self._open_copy, stack, stop)
            yield await _finish_in_thread(prepare, stop)
        finally:
            await asyncio.to_thread(stack.close)

    def _prepare(
        self, spec: WorkspaceSpec, open_copy: OpenCopy, stack: ExitStack, stop: threading.Event
    ) -> Environment:
        """Copy the folder if the spec asks for a new copy, and open the environment."""
        folder = spec.root
        missing = ""
        shared = self.shared.workspace
        if spec.kind is WorkspaceKind.COPY:
            from .workspaces.copy import make_temporary_copy

            source = open_workspace(spec.root) if spec.root else shared
            folder, missing = stack.enter_context(make_temporary_copy(source, stop))
        environment = open_copy(folder, shared.root)
        stack.callback(environment.sandbox.close)
        return replace(environment, missing=missing)


async def _finish_in_thread(
    work: Coroutine[Any, Any, Environment], stop: threading.Event
) -> Environment:
    """Wait for work in a thread. When cancelled, stop the work and wait for the thread to end."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # read it, or asyncio logs it as never retrieved
        raise
