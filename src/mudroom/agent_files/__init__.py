"""Agent files: Markdown files with a head become Agents; skills and context files beside them. The built-in agents lie here, too."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._core.agents import Agent

if TYPE_CHECKING:
    from .agents import LoadedAgents, load_agent_file, load_agent_files, parse_agent_keys
    from .context_files import ContextFiles, load_context_files
    from .diagnostics import Diagnostic, Severity, count_by_severity
    from .fields import fold_name, normalize_name
    from .safe_read import find_files
    from .skills import Skill, load_skill

BUILTIN_AGENTS = ("general", "explore", "plan")
"""Agents there always are; a file with one's name takes its place."""

_HOMES = {
    "agents": "LoadedAgents load_agent_file load_agent_files parse_agent_keys",
    "context_files": "ContextFiles load_context_files",
    "diagnostics": "Diagnostic Severity count_by_severity",
    "fields": "fold_name normalize_name",
    "safe_read": "find_files",
    "skills": "Skill load_skill",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022  (by theme)
    "BUILTIN_AGENTS",
    "load_builtin_agent",
    "load_agent_files",
    "load_agent_file",
    "parse_agent_keys",
    "LoadedAgents",
    "Diagnostic",
    "Severity",
    "count_by_severity",
    "Skill",
    "load_skill",
    "ContextFiles",
    "load_context_files",
    "normalize_name",
    "fold_name",
    "find_files",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def load_builtin_agent(name: str) -> Agent:
    """The built-in agent of that name: "main" or one of BUILT_IN. Its head is plain enough to be read without YAML."""
    text = read_builtin_source(name)
    _, head, body = text.split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in head.splitlines())
    tools = keys.get("tools")
    return Agent(
        name=keys["name"],
        description=keys["description"],
        instructions=body.strip(),
        tools=tuple(tools.split(", ")) if tools else None,
    )


def read_builtin_source(name: str) -> str:
    """The text of a built-in agent's file."""
    with open(f"{os.path.dirname(__file__)}/{name}.md", encoding="utf-8") as file:
        return file.read()
