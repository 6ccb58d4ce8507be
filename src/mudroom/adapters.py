"""Open the adapters that a session and its worker processes use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ._core.agents import Agent
from ._core.ports import Journal, Sandbox, SessionStore, Workspace
from ._core.tools import Tool, ToolCategory
from ._engine.task import task_tool
from .agent_files import Skill
from .options import SessionOptions


def collect_tools(
    own: Sequence[Tool],
    agents: Mapping[str, Agent],
    skills: Mapping[str, Skill],
    *,
    ask: bool,
) -> dict[str, Tool]:
    """Return built-in tools and the caller's, by name. `ask`: commands need confirmation."""
    from .tools import builtin_tools

    tools = {**builtin_tools(), "task": task_tool(agents)}
    if ask:
        for name, tool in tools.items():
            if tool.category is ToolCategory.RUN:
                tools[name] = replace(tool, needs_confirmation=True)
    if any(not skill.is_hidden for skill in skills.values()):
        from .tools.skill import make_skill_tool

        tools["skill"] = make_skill_tool(skills)
    tools.update((tool.name, tool) for tool in own)
    return tools


def open_workspace(folder: str, *readable: str, copied_from: str = "") -> Workspace:
    """Open a folder as a workspace.

    Arguments:
        readable: folders outside it. copied_from: see SharedWorkspace.
    """
    from .workspaces.shared import SharedWorkspace

    return SharedWorkspace(folder, readable=readable, copied_from=copied_from)


def open_sandbox(
    mode: str, folder: str, home: str, notices: list[str], allow_net: bool, can_ask: bool
) -> Sandbox:
    """Open the best sandbox of a mode; see `SessionOptions.sandbox`."""
    from .sandboxes.choose import SandboxRequest, choose_sandbox

    request = SandboxRequest(
        workspace=folder,
        mode=mode,
        state_dir=home,
        environ=os.environ,
        network=allow_net,
        can_ask=can_ask,
    )
    sandbox, notice = choose_sandbox(request)
    if notice:
        notices.append(notice)
    return sandbox


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
