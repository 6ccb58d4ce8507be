"""Creation of a session from settings: the only place where settings become session options."""

from __future__ import annotations

import os
from typing import Any

from ..._core.agents import Agent
from ..._core.budgets import Budget
from ..._core.ports import Approver
from ...config import Settings
from ...session import Session
from .load_permissions import LoadedPermissions, is_trusted
from .session_start import NEW_SESSION, SessionStart


def create_session(
    settings: Settings,
    cwd: str,
    loaded: LoadedPermissions,
    start: SessionStart = NEW_SESSION,
    *,
    approver: Approver | None = None,
    model: str = "",
    prices: bool = False,
) -> Session:
    """Create a session without opening it.

    Arguments:
        approver: asks the user about tool calls. model: replaces the one of the settings.
        prices: report costs in every output format.

    Other arguments as for `session_options`.
    """
    options = session_options(settings, cwd, loaded, start)
    if approver:
        options["approver"] = approver
    if model:
        options["model"] = model
    if prices:
        options["prices"] = True
    session = Session(**options)
    session.notices.extend(loaded.notices)
    return session


def session_options(
    settings: Settings,
    cwd: str,
    loaded: LoadedPermissions,
    start: SessionStart = NEW_SESSION,
) -> dict[str, Any]:
    """Return the fields of SessionOptions for these settings.

    A setting that has the name of a session option is passed on; only the others are listed here.

    Arguments:
        cwd: folder of the session. loaded: its permissions. start: the session to continue.

    Raises UsageError for agents that cannot be used.
    """
    agents: list[Agent] = []
    if settings.agents:
        from .parse_json_flags import parse_inline_agents

        agents = parse_inline_agents(settings.agents)
    return {
        **settings.to_options(),
        **start.session_arguments,
        "permissions": loaded.permissions,
        "trusted": is_trusted(settings, cwd),
        "agents": agents,
        "agent_files": True,
        "cwd": cwd,
        "prompt_budget": _to_budget(settings),
        "prices": settings.output_format != "text",
        "environ": os.environ,
    }


def _to_budget(settings: Settings) -> Budget:
    seconds = None if settings.max_minutes is None else settings.max_minutes * 60
    return Budget(
        turns=settings.max_turns,
        seconds=seconds,
        total_tokens=settings.max_tokens,
        usd=settings.max_budget_usd,
    )
