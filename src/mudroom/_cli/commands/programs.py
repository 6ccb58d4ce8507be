"""Commands about MCP servers, hooks and plugins."""

from __future__ import annotations

import click

from ._definitions import CommandGroup
from ._options import (
    AMOUNT,
    COUNT,
    choice_option,
    folder_option,
    isolate_option,
    json_option,
    limit_options,
    listen_details,
    mode_option,
    net_option,
    plugin_dir_option,
    quiet_option,
    rules_options,
    sandbox_option,
    switch_option,
    value_option,
)

_name = click.argument("name")
_folder_option = folder_option("Work in this folder.")
_scope_option = choice_option(
    "--scope", ("project", "user"), "project: .mcp.json; user: a file of yours, for all folders."
)

_mcp = CommandGroup(
    "mcp",
    "programs.print_programs.print_servers",
    """List MCP servers and their files; add or remove one; list and call their tools; be one.

    Only tools and call start servers. Servers of a folder are used only when you trust them:
    mudroom trust.
    """,
    _folder_option,
)
_mcp.define(
    "list",
    "programs.print_programs.print_servers",
    "List the servers of all files, and why one is not used (the default).",
    json_option,
)
_mcp.define(
    "get",
    "programs.print_programs.print_server",
    "Show the settings of a server; values of variables are not shown.",
    _name,
    json_option,
)
_mcp.define(
    "add",
    "programs.edit_servers.add_server",
    """Add a server to .mcp.json, or with --scope user to a file of yours.

    Options of mudroom come before NAME; the arguments of the server come last.

    \b
    mudroom mcp add time uvx mcp-server-time
    mudroom mcp add --scope user -e TOKEN='${TOKEN}' git npx -y git-server
    mudroom mcp add docs https://docs.example.com/mcp
    """,
    _name,
    click.argument("target", metavar="COMMAND|URL"),
    click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARG]..."),
    _scope_option,
    choice_option("-t --transport", ("stdio", "http"), "Default: http for a URL, else stdio."),
    value_option(
        "-e --env variables",
        "NAME=VALUE",
        "Variable for the server; ${NAME} is a variable of yours.",
        multiple=True,
    ),
    value_option("-H --header headers", "TEXT", 'Header, such as "A: b".', multiple=True),
    ignore_unknown_options=True,
)
_mcp.define(
    "remove",
    "programs.edit_servers.remove_server",
    "Remove a server from .mcp.json or from your file.",
    _name,
    _scope_option,
)
_mcp.define(
    "tools",
    "programs.use_servers.print_tools",
    "Start the servers, or one, and list their tools.",
    click.argument("name", required=False),
)
_mcp.define(
    "call",
    "programs.use_servers.call_tool",
    """Call a tool of a server and print its result.

    \b
    mudroom mcp call time get_current_time '{"timezone": "UTC"}'
    """,
    click.argument("server"),
    click.argument("tool"),
    click.argument("arguments", default="{}", metavar="[JSON]"),
)
_mcp.define(
    "login",
    "programs.server_logins.log_in",
    """Log in to an HTTP server with OAuth, in a browser.

    Without a browser here, open the printed address elsewhere and paste the address that it ends
    at.
    """,
    _name,
)
_mcp.define(
    "logout", "programs.server_logins.log_out", "Delete the stored login of a server.", _name
)
_mcp.define(
    "serve",
    "serve_mcp.serve_mcp",
    """Be an MCP server: a host gives tasks to mudroom's agents.

    The host starts this command and talks to its stdin and stdout. With --listen, hosts connect
    to an address and need a token. Limits that a host requests can only lower those of the
    command. It needs the extra mcp.

    \b
    mudroom mcp serve -C ~/project --max-budget-usd 2 --total-usd 20
    mudroom serve token add alice
    mudroom mcp serve --listen 127.0.0.1:8701
    """,
    folder_option("Work in this folder.", default=None),
    value_option(
        "--listen", "HOST:PORT", "Serve over HTTP at this address; the next five flags need it."
    ),
    listen_details,
    value_option(
        "--allow-origin allowed_origins",
        "ORIGIN",
        "Let pages of this site connect, such as https://app.example.com.",
        multiple=True,
    ),
    value_option(
        "-m --model", "MODEL", "provider:model, e.g. anthropic:claude-sonnet-4-5, offline."
    ),
    value_option(
        "--child-model", "MODEL", "Model of the runs below a task (default: as the task)."
    ),
    value_option("--agents", "JSON", 'More agents: {"name": {"description": …, "prompt": …}}.'),
    value_option("--parallel", "N", "Tasks at the same time; more wait (default: 16).", COUNT),
    limit_options("task"),
    value_option("--total-tokens", "N", "Token limit of all tasks together.", COUNT),
    value_option("--total-usd", "USD", "Spending limit of all tasks together.", AMOUNT),
    sandbox_option,
    net_option,
    isolate_option,
    mode_option("Permission mode when no rule matches (default: the user of the host is asked)."),
    rules_options,
    switch_option("--trust", "Trust the agent files, MCP servers and hooks of this folder."),
    quiet_option,
)

_hooks = CommandGroup(
    "hooks",
    "programs.print_programs.print_hooks",
    """List hooks and their files.

    Nothing is started. Hooks of a folder are used only when you trust them: mudroom trust.
    """,
    _folder_option,
    plugin_dir_option,
)
_hooks.define(
    "list",
    "programs.print_programs.print_hooks",
    "List the hooks of all files, and why one is not used (the default).",
    json_option,
)
_hooks.define(
    "test",
    "programs.run_hooks.run_hooks",
    """Run the used hooks of EVENT with an example, and show the outcome.

    Without a tool, such as for Stop, --input has the fields of the event.

    \b
    mudroom hooks test PreToolUse --tool Bash --input '{"command": "git push"}'
    """,
    click.argument("event"),
    value_option("--tool", "NAME", "Tool of the call [Bash].", default="Bash"),
    value_option("--input input_text", "JSON", "Input of the tool.", default="{}"),
    json_option,
    plugin_dir_option,
)

_plugins = CommandGroup(
    "plugins",
    "programs.print_programs.print_plugins",
    """List plugins: where each is, and why one is not used.

    Nothing is started. Programs in a plugin of a folder are used only when you trust them: mudroom
    trust.
    """,
    _folder_option,
    plugin_dir_option,
)
_plugins.define(
    "list",
    "programs.print_programs.print_plugins",
    "List the plugins of settings files and of --plugin-dir (the default).",
    json_option,
)
_plugins.define(
    "show",
    "programs.print_programs.print_plugin",
    "Show the parts of a plugin, the size of its listing, and the programs it may start.",
    _name,
    json_option,
)

COMMANDS: dict[str, click.Command] = {"mcp": _mcp, "hooks": _hooks, "plugins": _plugins}
