"""Commands that explain permissions and list the trusted folders."""

from __future__ import annotations

import click

from ._options import (
    CONTEXT_SETTINGS,
    MODES,
    folder_option,
    json_option,
    rules_option,
)


@click.group(context_settings=CONTEXT_SETTINGS, invoke_without_command=True)
@folder_option("Show the rules of this folder.")
@click.pass_context
def permissions(ctx: click.Context, cwd: str) -> int | None:
    """Show the permission mode and the rules of this folder."""
    ctx.obj = cwd
    if ctx.invoked_subcommand:
        return None
    from ..actions.permissions import print_permissions

    return print_permissions(cwd)


@permissions.command(context_settings=CONTEXT_SETTINGS)
@click.argument("command")
@click.option(
    "--tool",
    default="bash",
    metavar="NAME",
    help="A tool other than bash; COMMAND is then its file, agent or address.",
)
@folder_option("Use the rules of this folder.", default=None)
@rules_option("allowed", "Assume that this flag is given.")
@rules_option("disallowed", "Assume that this flag is given.")
@click.option("--permission-mode", type=click.Choice(MODES), help="Assume this mode.")
@click.option(
    "--sandbox", type=click.Choice(["auto", "full", "file", "off"]), help="Assume this sandbox."
)
@click.option("--headless", is_flag=True, help="Assume that no user can be asked.")
@json_option
@click.pass_obj
def explain(
    folder: str,
    command: str,
    tool: str,
    cwd: str | None,
    headless: bool,
    as_json: bool,
    **flags: object,
) -> int:
    """Explain whether a command would be allowed, and by which rule."""
    from ..actions.permissions import explain_call

    return explain_call(
        command, tool=tool, cwd=cwd or folder, can_ask=not headless, as_json=as_json, flags=flags
    )


@click.group(context_settings=CONTEXT_SETTINGS, invoke_without_command=True)
@click.pass_context
def trust(ctx: click.Context) -> int | None:
    """List the folders whose files are trusted, and the programs of this folder.

    Programs are the MCP servers and hooks that files of a folder declare.
    """
    return None if ctx.invoked_subcommand else ctx.invoke(list_, as_json=False)


@trust.command(name="list", context_settings=CONTEXT_SETTINGS)
@json_option
def list_(as_json: bool) -> int:
    """List the trusted folders and the programs of this folder (the default)."""
    from ..actions.permissions import print_trusted

    return print_trusted(as_json=as_json)


@trust.command(context_settings=CONTEXT_SETTINGS)
@click.argument("folder", default=".")
def add(folder: str) -> int:
    """Trust a folder and all folders below it.

    The agent files in them get the rights that they ask for. The MCP servers and hooks that the
    folder declares now are listed and may start; when one changes, they need a new answer.
    """
    from ..actions.permissions import add_trusted

    return add_trusted(folder)


@trust.command(context_settings=CONTEXT_SETTINGS)
@click.argument("folder", default=".")
def remove(folder: str) -> int:
    """Stop trusting a folder and its programs."""
    from ..actions.permissions import remove_trusted

    return remove_trusted(folder)


COMMANDS: dict[str, click.Command] = {"permissions": permissions, "trust": trust}
