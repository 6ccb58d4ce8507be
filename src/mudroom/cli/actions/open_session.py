"""Open a session from settings."""

from __future__ import annotations

import os
from typing import Any

from ..._core.agents import Agent
from ..._core.budgets import Budget
from ...config import Settings
from ...session import Session
from .load_permissions import is_trusted, load_permissions


def create_session(settings: Settings, cwd: str, **arguments: Any) -> Session:
    """Create a session from settings, without opening it.

    Arguments:
        cwd: its folder.
        arguments: session options that replace those of the settings.

    Raises UsageError for agents that cannot be used.
    """
    agents: list[Agent] = []
    if settings.agents:
        from .parse_json_flags import parse_inline_agents

        agents = parse_inline_agents(settings.agents)
    permissions, notices = load_permissions(settings, cwd, attended="approver" in arguments)
    options: dict[str, Any] = {
        **settings.to_options(),
        "permissions": permissions,
        "trusted": is_trusted(settings, cwd),
        "agents": agents,
        "agent_files": True,
        "cwd": cwd,
        "budget": _to_budget(settings),
        "prices": settings.output_format != "text",
        "environ": os.environ,
    }
    session = Session(**options | arguments)
    session.notices.extend(notices)
    return session


def _to_budget(settings: Settings) -> Budget:
    seconds = None if settings.max_minutes is None else settings.max_minutes * 60
    return Budget(
        turns=settings.max_turns,
        seconds=seconds,
        total_tokens=settings.max_tokens,
        usd=settings.max_budget_usd,
    )
