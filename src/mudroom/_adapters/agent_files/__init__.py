"""Agent files: Markdown files with frontmatter that become Agents; also skills, context files and
the built-in agents' files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..._core.agents import Agent
from ..._platform.imports import load_later

if TYPE_CHECKING:
    from .agents import (
        TEMPLATE_DESCRIPTION,
        LoadedAgents,
        load_agent_file,
        load_agent_files,
        parse_agent_keys,
    )
    from .commands import check_commands, load_commands
    from .context_files import ContextFiles, load_context_files
    from .declared_servers import DeclaredServer, may_declare_servers, may_have_rights
    from .fields import fold_name, normalize_name
    from .output_styles import (
        NO_STYLE,
        OutputStyle,
        apply_style,
        find_style,
        load_output_styles,
    )
    from .safe_read import Diagnostic, Severity, count_by_severity, find_files, join_repeated
    from .skills import Skill, load_skill, load_skills

BUILTIN_AGENTS = ("general", "explore", "plan")
"""Agents that always exist. A user's or trusted agent file can replace one."""

__all__ = [  # noqa: RUF022  (by theme)
    "BUILTIN_AGENTS",
    "load_builtin_agent",
    "load_agent_files",
    "load_agent_file",
    "parse_agent_keys",
    "may_declare_servers",
    "DeclaredServer",
    "LoadedAgents",
    "TEMPLATE_DESCRIPTION",
    "Diagnostic",
    "Severity",
    "count_by_severity",
    "join_repeated",
    "Skill",
    "load_skill",
    "load_skills",
    "load_commands",
    "check_commands",
    "may_have_rights",
    "load_output_styles",
    "find_style",
    "apply_style",
    "OutputStyle",
    "NO_STYLE",
    "ContextFiles",
    "load_context_files",
    "normalize_name",
    "fold_name",
    "find_files",
]

# Loaded later for a quick start: built-in agents need none of these modules.
__getattr__ = load_later(
    __name__,
    {
        "agents": (
            "LoadedAgents TEMPLATE_DESCRIPTION load_agent_file load_agent_files parse_agent_keys"
        ),
        "commands": "check_commands load_commands",
        "context_files": "ContextFiles load_context_files",
        "declared_servers": "DeclaredServer may_declare_servers may_have_rights",
        "fields": "fold_name normalize_name",
        "output_styles": "NO_STYLE OutputStyle apply_style find_style load_output_styles",
        "safe_read": "Diagnostic Severity count_by_severity find_files join_repeated",
        "skills": "Skill load_skill load_skills",
    },
)


def load_builtin_agent(name: str) -> Agent:
    """Load the built-in agent "main" or one of BUILTIN_AGENTS."""
    # No YAML parser for these few plain lines: importing it costs start-up time.
    _, frontmatter, body = read_builtin_source(name).split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in frontmatter.splitlines())
    tools = keys.get("tools")
    return Agent(
        name=keys["name"],
        description=keys["description"],
        instructions=body.strip(),
        tools=tuple(tools.split(", ")) if tools else None,
    )


def read_builtin_source(name: str) -> str:
    """Read the text of a built-in agent's file."""
    with open(f"{os.path.dirname(__file__)}/{name}.md", encoding="utf-8") as file:
        return file.read()
