"""Commands about agents and skills: list, show, new, check."""

from __future__ import annotations

import click

from ._definitions import CommandGroup
from ._options import folder_option, json_option

_folder_option = folder_option("Work in this folder.")
_own_folder_option = folder_option("Work in this folder.", default=None)
_name = click.argument("name")

_agents = CommandGroup(
    "agents",
    "agents.print_agents",
    "List agents and skills; show, create or check their files.",
    _folder_option,
)
_agents.define(
    "list",
    "agents.print_agents",
    "List the agents and skills of this folder (the default).",
    _own_folder_option,
    json_option,
)
_agents.define(
    "show", "agents.print_agent", "Show one agent as it would run.", _name, _own_folder_option
)
_agents.define(
    "new",
    "agents.create_agent_file",
    "Create an agent file in .agents/agents.",
    _name,
    _own_folder_option,
)
_agents.define(
    "check",
    "agents.check_agent_files",
    "Check agent files, skills, commands and context files; exit code 1 if one is not usable.",
    click.argument("paths", nargs=-1, metavar="[PATH]..."),
    _own_folder_option,
)

COMMANDS: dict[str, click.Command] = {"agents": _agents}
