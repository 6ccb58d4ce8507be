"""What may be done: permissions from flags and files, and the commands that explain them and list trusted folders."""

from __future__ import annotations

import os
from typing import Any

import click

from ...errors import UsageError
from ..actions.load_permissions import MODES, join_tool_flags, load_permissions
from ..actions.load_settings import CONTEXT_SETTINGS, load_settings


@click.group(context_settings=CONTEXT_SETTINGS, invoke_without_command=True)
@click.pass_context
def permissions(ctx: click.Context) -> int:
    """Say what may be done here, and why."""
    if ctx.invoked_subcommand is None:
        settings = load_settings(".")
        held, notes = load_permissions(settings, ".", attended=True)
        print(f"mode: {held.mode}")
        print("\n".join(str(rule) for rule in held.rules) or "no rules")
        for note in notes:
            print(f"note: {note}")
    return 0


@permissions.command(context_settings=CONTEXT_SETTINGS)
@click.argument("command")
@click.option(
    "--tool",
    default="bash",
    metavar="NAME",
    help="A tool other than bash; COMMAND is then its file, agent or address.",
)
@click.option("-C", "cwd", default=".", metavar="DIR", help="In this folder.")
@click.option(
    "--allowed-tools",
    "--allowedTools",
    multiple=True,
    metavar="RULES",
    help="As if these were given.",
)
@click.option(
    "--disallowed-tools",
    "--disallowedTools",
    multiple=True,
    metavar="RULES",
    help="As if these were given.",
)
@click.option("--permission-mode", type=click.Choice(MODES), help="As if in this mode.")
@click.option("--headless", is_flag=True, help="As if nobody could be asked.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def explain(command: str, tool: str, cwd: str, headless: bool, as_json: bool, **flags: Any) -> int:
    """Say what would become of a call, part by part, and which rule decides."""
    from ..actions.explain_permission import explain_call

    settings = load_settings(cwd, **join_tool_flags(flags))
    held, _ = load_permissions(settings, cwd, attended=not headless)
    return explain_call(held, command, tool=tool, cwd=cwd, as_json=as_json)


@click.group(context_settings=CONTEXT_SETTINGS, invoke_without_command=True)
@click.pass_context
def trust(ctx: click.Context) -> int:
    """List the folders whose files are trusted; add or remove one."""
    if ctx.invoked_subcommand is None:
        from ...permissions.trust import load_trusted

        print("\n".join(load_trusted(load_settings(".").home)) or "no folder is trusted")
    return 0


@trust.command(name="list", context_settings=CONTEXT_SETTINGS)
def list_() -> int:
    """List them."""
    from ...permissions.trust import load_trusted

    print("\n".join(load_trusted(load_settings(".").home)) or "no folder is trusted")
    return 0


@trust.command(context_settings=CONTEXT_SETTINGS)
@click.argument("folder", default=".")
def add(folder: str) -> int:
    """Trust a folder and all below it: its agent files get the rights they ask for."""
    from ...permissions import trust

    print(f"trusted: {trust.trust_folder(load_settings('.').home, folder)}")
    return 0


@trust.command(context_settings=CONTEXT_SETTINGS)
@click.argument("folder", default=".")
def remove(folder: str) -> int:
    """Trust a folder no longer."""
    from ...permissions import trust

    if not trust.untrust_folder(load_settings(".").home, folder):
        raise UsageError(
            "this folder is not in the list",
            where=os.path.realpath(folder),
            remedy="mudroom trust lists them.",
        )
    print(f"no longer trusted: {os.path.realpath(folder)}")
    return 0


COMMANDS: dict[str, click.Command] = {"permissions": permissions, "trust": trust}
