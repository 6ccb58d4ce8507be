"""Open a session from settings."""

from __future__ import annotations

import os
from typing import Any

from ..._core.agents import Agent
from ..._core.budgets import Budget
from ...config import Settings
from ...session import Session
from .load_permissions import is_trusted, load_permissions


def create_session(settings: Settings, cwd: str, **more: Any) -> Session:
    """A session as the settings want it, not yet open. Raises UsageError for agents that cannot be used.

    Arguments:
        cwd: its folder. more: arguments of Session that take the place of what the settings say.
    """
    agents: list[Agent] = []
    if settings.agents:
        from .agents import parse_inline_agents

        agents = parse_inline_agents(settings.agents)
    held, notes = load_permissions(settings, cwd, attended="approver" in more)
    wish: dict[str, Any] = {
        "permissions": held,
        "trusted": is_trusted(settings, cwd),
        "agents": agents,
        "agent": settings.agent or None,
        "agent_files": True,
        "model": settings.model,
        "child_model": settings.child_model,
        "cwd": cwd,
        "home": settings.home,
        "budget": _budget(settings),
        "prices": settings.output_format != "text",
        "child_turns": settings.child_turns,
        "max_children": settings.max_children,
        "sandbox": settings.sandbox,
        "network": settings.allow_net,
        "environ": os.environ,
    }
    made = Session(**wish | more)
    made.notices.extend(notes)
    return made


def _budget(settings: Settings) -> Budget:
    seconds = settings.max_minutes and settings.max_minutes * 60
    return Budget(
        turns=settings.max_turns,
        seconds=seconds,
        total_tokens=settings.max_tokens,
        usd=settings.max_budget_usd,
    )
