"""Opens the adapters that a session and its worker processes use."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .._adapters.agent_files import Skill
from .._adapters.integrations.mcp_servers.spec import ServerSpec
from .._adapters.tools import BOARD_TOOLS, make_builtin_tools
from .._core.agents import Agent, WorkspaceKind
from .._core.listings import ListingLimits, choose_description_length
from .._core.messages import ToolCallBlock
from .._core.notices import Notice
from .._core.ports import Board, Hooks, Journal, Model, SessionServers, SessionStore
from .._core.ports.board import BoardOffer
from .._core.tool_names import normalize_tool_name, parse_tool_pattern, parse_tool_patterns
from .._core.tools import Tool, ToolCategory
from .._engine.children.child_brief import list_agents
from .._engine.children.task_tool import make_task_tool
from .._engine.file_writes import FileVersions
from .._engine.run_tools import RUN_TOOLS
from .._engine.session_context import SessionServices
from .._platform.git_folders import list_project_folders
from ..errors import UsageError, WorkspaceError
from ..permissions.policy import RulePolicy
from ..permissions.rules import Permissions, Verdict, parse_rule
from .options import SessionOptions

if TYPE_CHECKING:
    from .._adapters.boards.session_board import SessionBoard
    from .._adapters.integrations.tracing.session_tracing import SessionTracing
    from .._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces

log = logging.getLogger("mudroom")

_NO_LIMITS = ListingLimits()


def collect_tools(
    own: Sequence[Tool],
    agents: Mapping[str, Agent],
    skills: Mapping[str, Skill],
    *,
    ask: bool,
    isolation: bool = False,
    isolate: bool = False,
    limits: ListingLimits = _NO_LIMITS,
) -> dict[str, Tool]:
    """Collect the built-in tools and the caller's, by name.

    Arguments:
        ask: true if every command needs confirmation.
        isolation: true if children can have isolated workspaces.
        isolate: true if children that may change files have one by default.
    """
    listed_skills = [
        (skill.name, skill.description) for skill in skills.values() if not skill.is_hidden
    ]
    listed_agents = list_agents(agents)
    # Agent names also appear as the values of an argument.
    names = sum(len(name) + 4 for name, _ in listed_agents)
    length = choose_description_length([*listed_agents, *listed_skills], limits.characters - names)
    task = make_task_tool(agents, models=limits.models, length=length, isolation=isolation)
    tools = {**make_builtin_tools(), "task": task, **RUN_TOOLS}
    isolates = isolate or any(
        agent.workspace is WorkspaceKind.ISOLATED for agent in agents.values()
    )
    if isolation and isolates:
        from .._engine.run_tools.merge_tool import MERGE_TOOL

        tools["merge"] = MERGE_TOOL
    if ask:
        for name, tool in tools.items():
            if tool.category is ToolCategory.RUN:
                tools[name] = replace(tool, needs_confirmation=True)
    if listed_skills:
        from .._adapters.tools.skill import make_skill_tool

        tools["skill"] = make_skill_tool(skills, length=length)
    tools.update((tool.name, tool) for tool in own)
    return tools


def check_isolation(
    options: SessionOptions, agents: Iterable[Agent], folder: str, notices: list[Notice]
) -> None:
    """Raise UsageError if the session isolates its children but cannot use git.

    Agents that need git and lack it are named in `notices`.
    """
    isolated = [each.name for each in agents if each.workspace is WorkspaceKind.ISOLATED]
    if not options.isolation.each_child and not isolated:
        return  # ask for git's version only if it matters
    from .._adapters.workspaces.isolated.git import INSTALL_GIT, explain_unusable_git

    reason = explain_unusable_git(os.path.realpath(folder))
    if reason is None:
        return
    if options.isolation.each_child:
        raise UsageError(
            f"isolated workspaces need git: {reason}",
            where="isolate, in a program Isolation(each_child=...)",
            remedy=f"{INSTALL_GIT}, or let children share the folder.",
        )
    notices += (
        Notice(
            "missing",
            f"agent {name} cannot run: it has an isolated workspace, which needs git ({reason}). "
            f"{INSTALL_GIT}, or remove isolation from the agent",
        )
        for name in isolated
    )


def make_isolated_opener(
    home: str, session: str, folder: str, max_bytes: int
) -> Callable[[], IsolatedWorkspaces]:
    """Make a function that opens the session's isolated workspaces on its first call.

    Starts a thread that cleans up after killed processes.
    """
    _clean_up_isolated(home)

    @cache
    def open_isolated() -> IsolatedWorkspaces:
        from .._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces

        directory = os.path.join(home, "isolated", session)
        return IsolatedWorkspaces(directory, folder, home, max_bytes)

    return open_isolated


@cache
def _clean_up_isolated(home: str) -> None:
    """In another thread, store and remove isolated workspaces left by killed processes."""
    folder = os.path.join(home, "isolated")
    if not os.path.isdir(folder):
        return

    def clean_up() -> None:
        from .._adapters.workspaces.isolated.kept_work import remove_abandoned

        with suppress(WorkspaceError):  # `mudroom doctor` tells why they cannot be listed
            remove_abandoned(home)

    # A daemon, because the next process does what this one does not finish.
    threading.Thread(target=clean_up, name="workspace clean-up", daemon=True).start()


def choose_board_offer(options: SessionOptions, agents: Iterable[Agent]) -> BoardOffer:
    """Choose which runs have the tools for the task board; "" if no run does."""
    if options.children.board:
        return "all"
    agents = tuple(agents)
    patterns = [pattern for agent in agents for pattern in parse_tool_patterns(agent.tools)]
    is_named = any(each.tool in BOARD_TOOLS and not each.is_excluded for each in patterns)
    claims = any(agent.claims_tasks for agent in agents)
    return "request" if is_named or claims else ""


def make_board(home: str, folder: str, session: str, *, is_owner: bool = True) -> SessionBoard:
    from .._adapters.boards.file import get_board_path
    from .._adapters.boards.session_board import SessionBoard

    path = get_board_path(home, list_project_folders(folder)[-1])
    return SessionBoard(path, session, is_owner=is_owner)


def make_board_tools(board: Board | None, offer: BoardOffer) -> tuple[Tool, ...]:
    if board is None or not offer:
        return ()
    from .._adapters.tools.board import make_board_tools

    return make_board_tools(board, offer)


def make_web_tools(permissions: Permissions, *, allow_net: bool) -> tuple[Tool, ...]:
    """Make `web_fetch` and `web_search`, each if the network or a rule allows it.

    An allow rule for an IP address, such as `WebFetch(domain:127.0.0.1)`, allows that address even
    if it is not public.
    """
    tools: list[Tool] = []
    if allow_net or _allows_search(permissions):
        from .._adapters.tools.web_search import make_web_search_tool

        tools.append(make_web_search_tool())
    allowed = [
        rule
        for rule in permissions.rules
        if rule.verdict is Verdict.ALLOW and rule.names("web_fetch")
    ]
    if not allow_net and not allowed:
        return tuple(tools)
    from .._adapters.output_filters import mark_page
    from .._adapters.tools.web_fetch import make_web_fetch_tool

    domains = [rule.pattern.removeprefix("domain:").strip() for rule in allowed]
    return (make_web_fetch_tool(mark_page, domains), *tools)


def _allows_search(permissions: Permissions) -> bool:
    return any(
        rule.verdict is Verdict.ALLOW and not rule.pattern and rule.names("web_search")
        for rule in permissions.rules
    )


def explain_missing_search(agent: Agent, model: Model, options: SessionOptions) -> list[Notice]:
    """Explain why an agent that asks for `web_search` does not get it; empty if it does.

    An agent asks for the tool if its file or an allow rule names it.
    """
    is_allowed = _allows_search(options.permissions)
    is_named = any(parse_tool_pattern(text).tool == "web_search" for text in agent.tools or ())
    if not is_allowed and not is_named:
        return []
    if not is_allowed and not options.allow_net:
        reason = "use --allow-net, or the allow rule WebSearch"
    elif "web_search" not in getattr(model, "provider_tools", ()):
        reason = f"mudroom knows no web search of {model.name}"
    elif not is_allowed and options.permissions.can_ask:
        reason = "the provider does not ask before a search; the allow rule WebSearch permits it"
    else:
        return []
    return [Notice("missing", f"web_search is not available: {reason}")]


def open_store(store: SessionStore | str | None, home: str) -> SessionStore:
    """Open the caller's store, the one at an address, or the files in the state folder."""
    if store is not None and not isinstance(store, str):
        return store
    from .._adapters.journals import sessions

    return sessions.open_store(home, store or "")


async def open_journal(options: SessionOptions, home: str) -> Journal:
    if not isinstance(options.journal, str):
        return options.journal
    if options.journal == "memory":
        from .._adapters.journals.memory import MemoryJournal

        return MemoryJournal()
    store = open_store(options.store, home)
    if options.resume and not options.fork:
        return await store.open(options.id)
    return await store.create(options.id)


def open_tracing(
    options: SessionOptions,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
    notices: list[Notice],
) -> SessionTracing | None:
    """Open the trace exporter, None without one; `start` starts its thread.

    Adds a notice if variables disable traces. Raises UsageError if packages are missing.
    """
    if options.integrations.tracing is None:
        return None
    from .._adapters.integrations.tracing.session_tracing import open_session_tracing
    from .._adapters.models.providers import find_server

    return open_session_tracing(
        options.integrations.tracing,
        options.id,
        environ,
        redact,
        notices,
        cache(partial(find_server, environ)),
    )


def open_versions(options: SessionOptions, home: str) -> FileVersions | None:
    """Open the store of earlier file contents; None if the session leaves nothing in `home`."""
    is_own_store = options.store is not None and not isinstance(options.store, str)
    if options.journal != "sqlite" or is_own_store:
        return None
    return FileVersions(os.path.join(home, "versions", options.id))


def add_hooks(
    options: SessionOptions,
    services: SessionServices,
    model: str,
    environ: Mapping[str, str],
    home: str,
    servers: SessionServers | None,
) -> SessionServices:
    """Add hooks to a session's services, if it has any.

    Raises UnknownName for an event that never fires, and UsageError for programs together with an
    object.
    """
    hooks = options.integrations.hooks
    programs = options.integrations.hook_programs
    if isinstance(hooks, Hooks):
        if programs:
            raise UsageError(
                "a Hooks object and hook_programs cannot be used together",
                where="Session",
                remedy='Give functions by event, as in hooks={"PreToolUse": [function]}.',
            )
        return replace(services, hooks=hooks)
    if not hooks and not programs:
        return services
    from .._adapters.integrations.hook_programs.session_hooks import (
        SessionFacts,
        open_session_hooks,
    )

    folder = services.environments.shared.workspace.root
    facts = SessionFacts(
        session=options.id,
        folder=folder,
        spill_folder=services.spill_folder,
        model=model,
        mode=options.permissions.mode,
        can_ask=options.approver is not None,
    )
    opened = open_session_hooks(
        programs,
        hooks or {},
        facts,
        make_rule_matcher(services.toolbox, folder, environ.get("HOME", "")),
        environ=environ,
        home=home,
        journal=services.journal,
        call_tool=servers.call_tool if servers else None,
    )
    services.watchers.append(opened.transcripts.observe)
    return replace(services, hooks=opened)


def make_rule_matcher(
    toolbox: Mapping[str, Tool], folder: str, user_home: str
) -> Callable[[str, ToolCallBlock], bool]:
    """Make a function that matches calls against rules. An unreadable rule matches every call."""
    policies: dict[str, RulePolicy | None] = {}

    def matches(text: str, call: ToolCallBlock) -> bool:
        if text not in policies:
            try:
                # Whatever the verdict, a finding that has a rule is a match.
                rule = parse_rule(text, Verdict.DENY)
            except UsageError as error:
                log.warning("The condition of a hook is not used: %s", error)
                policies[text] = None
            else:
                policies[text] = RulePolicy(
                    Permissions(rules=(rule,)),
                    workspace=folder,
                    user_home=user_home,
                    tools=make_builtin_tools(),
                    tier=lambda: "off",
                )
        policy = policies[text]
        tool = toolbox.get(normalize_tool_name(call.name)) or toolbox.get(call.name)
        # Better to call a hook once too often than to turn a guard off silently.
        if policy is None or tool is None:
            return policy is None
        return any(finding.rule for finding in policy.collect_findings(tool, call.arguments))

    return matches


def make_servers(
    specs: Sequence[ServerSpec],
    permissions: Permissions,
    folder: str,
    home: str,
    environ: Mapping[str, str],
) -> SessionServers | None:
    """Make the servers for these configurations, None if there are none. Starts nothing."""
    if not specs:
        return None
    from .._adapters.integrations.mcp_servers.servers import McpServers
    from .._adapters.output_filters import Redactor
    from .._adapters.tools._image_files import parse_image_or_reason

    return McpServers(
        specs,
        folder=folder,
        environ=environ,
        cache_folder=os.path.join(home, "mcp"),
        is_allowed=lambda name: not permissions.denies_tool(name),
        parse_image=parse_image_or_reason,
        make_redact=Redactor,
    )
