"""Agent files: Markdown files with a head become Agents; skills and context files beside them. The built-in agents lie here, too."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._core.agents import Agent

if TYPE_CHECKING:
    from .agents import Found, agent_of, agents_from, inline
    from .context_files import Context, context_from
    from .diagnostics import Finding, Severity, counted
    from .fields import folded, plain_name
    from .safe_read import below
    from .skills import Skill, skill_of

BUILT_IN = ("general", "explore", "plan")
"""Agents there always are; a file with one's name takes its place."""

_HOMES = {
    "agents": "Found agent_of agents_from inline",
    "context_files": "Context context_from",
    "safe_read": "below",
    "diagnostics": "Finding Severity counted",
    "fields": "folded plain_name",
    "skills": "Skill skill_of",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022  (by theme)
    "BUILT_IN",
    "builtin",
    "agents_from",
    "agent_of",
    "inline",
    "Found",
    "Finding",
    "Severity",
    "counted",
    "Skill",
    "skill_of",
    "Context",
    "context_from",
    "plain_name",
    "folded",
    "below",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def builtin(name: str) -> Agent:
    """The built-in agent of that name: "main" or one of BUILT_IN. Its head is plain enough to be read without YAML."""
    text = source(name)
    _, head, body = text.split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in head.splitlines())
    tools = keys.get("tools")
    return Agent(
        name=keys["name"],
        description=keys["description"],
        instructions=body.strip(),
        tools=tuple(tools.split(", ")) if tools else None,
    )


def source(name: str) -> str:
    """The text of a built-in agent's file."""
    with open(f"{os.path.dirname(__file__)}/{name}.md", encoding="utf-8") as file:
        return file.read()
