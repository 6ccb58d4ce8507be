"""Commands about MCP servers, hooks and plugins."""

from __future__ import annotations

from typing import Any

import click

from ._options import CONTEXT_SETTINGS, folder_option, json_option, plugin_dir_option
from .mcp_server import serve

_scope_option = click.option(
    "--scope",
    type=click.Choice(("project", "user")),
    help="project: .mcp.json; user: a file of yours, for all folders.",
)


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@folder_option("Work in this folder.")
@click.pass_context
def mcp(ctx: click.Context, cwd: str) -> int | None:
    """List MCP servers and their files; add or remove one; list and call their tools; be one.

    Only tools and call start servers. Servers of a folder are used only when you trust them:
    mudroom trust.
    """
    ctx.obj = cwd
    return None if ctx.invoked_subcommand else ctx.invoke(list_servers, as_json=False)


@mcp.command("list", context_settings=CONTEXT_SETTINGS)
@json_option
def list_servers(as_json: bool) -> int:
    """List the servers of all files, and why one is not used (the default)."""
    from ..actions.programs.print_programs import print_servers

    return print_servers(click.get_current_context().obj, as_json=as_json)


@mcp.command("get", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@json_option
@click.pass_obj
def get_server(cwd: str, name: str, as_json: bool) -> int:
    """Show the settings of a server; values of variables are not shown."""
    from ..actions.programs.print_programs import print_server

    return print_server(cwd, name, as_json=as_json)


@mcp.command("add", context_settings={**CONTEXT_SETTINGS, "ignore_unknown_options": True})
@click.argument("name")
@click.argument("target", metavar="COMMAND|URL")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARG]...")
@_scope_option
@click.option(
    "-t",
    "--transport",
    type=click.Choice(("stdio", "http")),
    help="Default: http for a URL, else stdio.",
)
@click.option(
    "-e",
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Variable for the server; ${NAME} is a variable of yours.",
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="TEXT", help='Header, such as "A: b".'
)
@click.pass_obj
def add_server(
    cwd: str, name: str, target: str, arguments: tuple[str, ...], scope: str | None, **options: Any
) -> int:
    """Add a server to .mcp.json, or with --scope user to a file of yours.

    Options of mudroom come before NAME; the arguments of the server come last.

    \b
    mudroom mcp add time uvx mcp-server-time
    mudroom mcp add --scope user -e TOKEN='${TOKEN}' git npx -y git-server
    mudroom mcp add docs https://docs.example.com/mcp
    """
    from ..actions.programs.edit_servers import add_server as add

    return add(cwd, name, target, arguments, scope=scope or "project", **options)


@mcp.command("remove", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@_scope_option
@click.pass_obj
def remove_server(cwd: str, name: str, scope: str | None) -> int:
    """Remove a server from .mcp.json or from your file."""
    from ..actions.programs.edit_servers import remove_server as remove

    return remove(cwd, name, scope=scope)


@mcp.command("tools", context_settings=CONTEXT_SETTINGS)
@click.argument("name", required=False)
@click.pass_obj
def list_server_tools(cwd: str, name: str | None) -> int:
    """Start the servers, or one, and list their tools."""
    from ..actions.programs.use_servers import print_tools

    return print_tools(cwd, name or "")


@mcp.command("call", context_settings=CONTEXT_SETTINGS)
@click.argument("server")
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON]")
@click.pass_obj
def call_server_tool(cwd: str, server: str, tool: str, arguments: str) -> int:
    """Call a tool of a server and print its result.

    \b
    mudroom mcp call time get_current_time '{"timezone": "UTC"}'
    """
    from ..actions.programs.use_servers import call_tool

    return call_tool(cwd, server, tool, arguments)


@mcp.command("login", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.pass_obj
def log_in_to_server(cwd: str, name: str) -> int:
    """Log in to an HTTP server with OAuth, in a browser.

    Without a browser here, open the printed address elsewhere and paste the address that it ends
    at.
    """
    from ..actions.programs.server_logins import log_in

    return log_in(cwd, name)


@mcp.command("logout", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@click.pass_obj
def log_out_of_server(cwd: str, name: str) -> int:
    """Delete the stored login of a server."""
    from ..actions.programs.server_logins import log_out

    return log_out(cwd, name)


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@folder_option("Work in this folder.")
@plugin_dir_option
@click.pass_context
def hooks(ctx: click.Context, cwd: str, plugin_dirs: str | None) -> int | None:
    """List hooks and their files.

    Nothing is started. Hooks of a folder are used only when you trust them: mudroom trust.
    """
    ctx.obj = (cwd, plugin_dirs)
    return None if ctx.invoked_subcommand else ctx.invoke(list_hooks, as_json=False)


@hooks.command("list", context_settings=CONTEXT_SETTINGS)
@json_option
def list_hooks(as_json: bool) -> int:
    """List the hooks of all files, and why one is not used (the default)."""
    from ..actions.programs.print_programs import print_hooks

    return print_hooks(*click.get_current_context().obj, as_json=as_json)


@hooks.command("test", context_settings=CONTEXT_SETTINGS)
@click.argument("event")
@click.option("--tool", default="Bash", metavar="NAME", help="Tool of the call [Bash].")
@click.option("--input", "input_text", default="{}", metavar="JSON", help="Input of the tool.")
@json_option
@plugin_dir_option
@click.pass_obj
def test_hooks(
    group: tuple[str, str | None],
    event: str,
    tool: str,
    input_text: str,
    plugin_dirs: str | None,
    as_json: bool,
) -> int:
    """Run the used hooks of EVENT with an example, and show the outcome.

    Without a tool, such as for Stop, --input has the fields of the event.

    \b
    mudroom hooks test PreToolUse --tool Bash --input '{"command": "git push"}'
    """
    from ..actions.programs.run_hooks import run_hooks

    cwd, of_group = group
    return run_hooks(cwd, event, tool, input_text, plugin_dirs or of_group, as_json=as_json)


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@folder_option("Work in this folder.")
@plugin_dir_option
@click.pass_context
def plugins(ctx: click.Context, cwd: str, plugin_dirs: str | None) -> int | None:
    """List plugins: where each is, and why one is not used.

    Nothing is started. Programs in a plugin of a folder are used only when you trust them: mudroom
    trust.
    """
    ctx.obj = (cwd, plugin_dirs)
    return None if ctx.invoked_subcommand else ctx.invoke(list_plugins, as_json=False)


@plugins.command("list", context_settings=CONTEXT_SETTINGS)
@json_option
def list_plugins(as_json: bool) -> int:
    """List the plugins of settings files and of --plugin-dir (the default)."""
    from ..actions.programs.print_plugins import print_plugins

    return print_plugins(*click.get_current_context().obj, as_json=as_json)


@plugins.command("show", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@json_option
@click.pass_obj
def show_plugin(obj: tuple[str, str | None], name: str, as_json: bool) -> int:
    """Show the parts of a plugin, the size of its listing, and the programs it may start."""
    from ..actions.programs.print_plugins import print_plugin

    return print_plugin(obj[0], name, obj[1], as_json=as_json)


mcp.add_command(serve)

COMMANDS: dict[str, click.Command] = {"mcp": mcp, "hooks": hooks, "plugins": plugins}
