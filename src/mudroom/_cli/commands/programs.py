"""Commands about MCP servers, hooks and plugins."""

from __future__ import annotations

from typing import Any

import click

from ._options import (
    AMOUNT,
    CONTEXT_SETTINGS,
    COUNT,
    MODES,
    complete_folders,
    folder_option,
    json_option,
    listen_details,
    plugin_dir_option,
    quiet_option,
    rules_options,
    sandbox_option,
    switch_option,
    value_option,
)


@click.command(context_settings=CONTEXT_SETTINGS)
@click.option(
    "-C", "cwd", metavar="DIR", shell_complete=complete_folders, help="Work in this folder."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve over HTTP at this address; the next five flags need it.",
)
@listen_details
@click.option(
    "--allow-origin",
    "allowed_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this site connect, such as https://app.example.com.",
)
@value_option("-m --model", "MODEL", "provider:model, e.g. anthropic:claude-sonnet-4-5, offline.")
@value_option("--child-model", "MODEL", "Model of the runs below a task (default: as the task).")
@value_option("--agents", "JSON", 'More agents: {"name": {"description": …, "prompt": …}}.')
@value_option("--parallel", "N", "Tasks at the same time; more wait (default: 16).", COUNT)
@value_option("--max-turns", "N", "Maximum model calls of a task; one more for a summary.", COUNT)
@value_option("--max-minutes", "N", "Time limit of a task in minutes.", AMOUNT)
@value_option("--max-tokens", "N", "Token limit of a task (input + output).", COUNT)
@value_option("--max-budget-usd", "USD", "Spending limit of a task.", AMOUNT)
@value_option("--total-tokens", "N", "Token limit of all tasks together.", COUNT)
@value_option("--total-usd", "USD", "Spending limit of all tasks together.", AMOUNT)
@sandbox_option
@switch_option("--allow-net", "Let commands and web tools reach the network.")
@switch_option("--isolate", "Give children that may change files own copies.")
@click.option(
    "--permission-mode",
    type=click.Choice(MODES),
    help="Permission mode when no rule matches (default: the user of the host is asked).",
)
@rules_options
@switch_option("--trust", "Trust the agent files, MCP servers and hooks of this folder.")
@quiet_option
@click.pass_obj
def serve(
    group_cwd: str,
    cwd: str | None,
    listen: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
    host_names: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    parallel: int | None,
    total_tokens: int | None,
    total_usd: float | None,
    quiet: bool,
    **flags: object,
) -> int:
    """Be an MCP server: a host gives tasks to mudroom's agents.

    The host starts this command and talks to its stdin and stdout. With --listen, hosts connect
    to an address and need a token. Limits that a host requests can only lower those of the
    command. It needs the extra mcp.

    \b
    mudroom mcp serve -C ~/project --max-budget-usd 2 --total-usd 20
    mudroom serve token add alice
    mudroom mcp serve --listen 127.0.0.1:8701
    """
    from ..actions.serve_mcp import McpServeFlags, serve_mcp

    chosen = McpServeFlags(
        listen=listen or "",
        tls_cert=tls_cert or "",
        tls_key=tls_key or "",
        is_behind_proxy=behind_proxy,
        host_names=host_names,
        allowed_origins=allowed_origins,
        parallel=parallel,
        total_tokens=total_tokens,
        total_usd=total_usd,
        is_quiet=quiet,
    )
    return serve_mcp(cwd or group_cwd, flags, chosen)


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
    from ..actions.programs.print_programs import print_plugins

    return print_plugins(*click.get_current_context().obj, as_json=as_json)


@plugins.command("show", context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@json_option
@click.pass_obj
def show_plugin(obj: tuple[str, str | None], name: str, as_json: bool) -> int:
    """Show the parts of a plugin, the size of its listing, and the programs it may start."""
    from ..actions.programs.print_programs import print_plugin

    return print_plugin(obj[0], name, obj[1], as_json=as_json)


mcp.add_command(serve)

COMMANDS: dict[str, click.Command] = {"mcp": mcp, "hooks": hooks, "plugins": plugins}
