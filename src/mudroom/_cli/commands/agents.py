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
    return None if ctx.invoked_subcommand else ctx.invoke(list_agents, as_json=False)


@agents.command("list", context_settings=CONTEXT_SETTINGS)
@json_option
def list_agents(as_json: bool) -> int:
    """List the agents and skills of this folder (the default)."""
    from ..actions.agents import print_agents

    return print_agents(click.get_current_context().obj, as_json=as_json)


@agents.command("show", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.pass_obj
def show_agent(cwd: str, name: str) -> int:
    """Show one agent as it would run."""
    from ..actions.agents import print_agent

    return print_agent(cwd, name)


@agents.command("new", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.pass_obj
def new_agent(cwd: str, name: str) -> int:
    """Create an agent file in .agents/agents."""
    from ..actions.agents import create_agent_file

    return create_agent_file(cwd, name)


@agents.command("check", context_settings=CONTEXT_SETTINGS)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.pass_obj
def check_agents(cwd: str, paths: tuple[str, ...]) -> int:
    """Check agent files, skills, commands and context files; exit code 1 if one is not usable."""
    from ..actions.agents import check_agent_files

    return check_agent_files(cwd, paths)


COMMANDS: dict[str, click.Command] = {"agents": agents}
