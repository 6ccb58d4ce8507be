"""Commands about agents and skills: list, show, new, check."""

from __future__ import annotations

import click

from ._options import CONTEXT_SETTINGS, folder_option, json_option


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@folder_option("Work in this folder.")
@click.pass_context
def agents(ctx: click.Context, cwd: str) -> int | None:
    """List agents and skills; show, create or check their files."""
    from ..actions.load_settings import load_settings

    load_settings(cwd)
    ctx.obj = cwd
    return None if ctx.invoked_subcommand else ctx.invoke(list_agents, cwd=None, as_json=False)


# The option may stand before or after the name of the command.
_own_folder_option = folder_option("Work in this folder.", default=None)


@agents.command("list", context_settings=CONTEXT_SETTINGS)
@_own_folder_option
@json_option
def list_agents(cwd: str | None, as_json: bool) -> int:
    """List the agents and skills of this folder (the default)."""
    from ..actions.agents import print_agents

    return print_agents(cwd or click.get_current_context().obj, as_json=as_json)


@agents.command("show", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@_own_folder_option
@click.pass_obj
def show_agent(folder: str, name: str, cwd: str | None) -> int:
    """Show one agent as it would run."""
    from ..actions.agents import print_agent

    return print_agent(cwd or folder, name)


@agents.command("new", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@_own_folder_option
@click.pass_obj
def new_agent(folder: str, name: str, cwd: str | None) -> int:
    """Create an agent file in .agents/agents."""
    from ..actions.agents import create_agent_file

    return create_agent_file(cwd or folder, name)


@agents.command("check", context_settings=CONTEXT_SETTINGS)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@_own_folder_option
@click.pass_obj
def check_agents(folder: str, paths: tuple[str, ...], cwd: str | None) -> int:
    """Check agent files, skills, commands and context files; exit code 1 if one is not usable."""
    from ..actions.agents import check_agent_files

    return check_agent_files(cwd or folder, paths)


COMMANDS: dict[str, click.Command] = {"agents": agents}
