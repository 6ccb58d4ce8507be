"""Commands that other programs connect to: `acp` for editors, `serve` for clients over HTTP."""

from __future__ import annotations

import click

from ._definitions import CommandGroup, define_command
from ._options import (
    AMOUNT,
    COUNT,
    MODES,
    choice_option,
    flag_option,
    folder_option,
    isolate_option,
    json_option,
    limit_options,
    listen_details,
    mode_option,
    net_option,
    quiet_option,
    rules_options,
    sandbox_option,
    store_option,
    switch_option,
    value_option,
    worker_option,
)

_acp = define_command(
    "acp",
    "serve_acp.serve_acp",
    """Serve an editor with the Agent Client Protocol, on stdin and stdout.

    An editor starts this command. It shows children as sessions of their own, if it can.
    """,
    value_option("-m --model", "MODEL", "Model of new sessions; the editor can change it."),
    mode_option("Mode of new sessions."),
    switch_option("--trust", "Trust the folders of this start."),
    flag_option("--unsaved reads_unsaved", "Let `read` show text that is not saved yet."),
    flag_option("--setup is_check", "Say whether a model is set up, and exit."),
    quiet_option,
)

_serve = CommandGroup(
    "serve",
    "serve_http.serve_http",
    """Serve sessions over HTTP: events in, a stream of events out, and OpenAI's API.

    Clients need a token. Work of a server that was killed continues when it is started again.

    \b
    mudroom serve token add alice --usd-per-day 5
    mudroom serve -C ~/project --max-budget-usd 1
    """,
    folder_option('Folder of the workspace "default".'),
    value_option("--workspace workspaces", "NAME=DIR", "A workspace.", multiple=True),
    value_option("--listen", "HOST:PORT", "Address.", default="127.0.0.1:8700", show_default=True),
    listen_details,
    value_option("--login-header", "NAME", "Header in which the proxy names the user."),
    value_option(
        "--login-from login_networks",
        "ADDRESS",
        "Address of the proxy that may send it, or a range such as 10.0.0.0/24.",
        multiple=True,
    ),
    value_option(
        "--login-usd-per-day", "USD", "Spending limit of each such user each day.", AMOUNT
    ),
    value_option("--login-tokens-per-day", "N", "Token limit of each such user each day.", COUNT),
    value_option(
        "--parallel",
        "N",
        "Prompts at the same time; more wait.",
        click.IntRange(1, 10_000),
        default=16,
        show_default=True,
    ),
    value_option(
        "--parallel-owner per_owner", "N", "Those of one owner (default: 3/4 of --parallel).", COUNT
    ),
    value_option(
        "--drain-seconds",
        "N",
        "Time for prompts to end when the server stops.",
        click.FloatRange(0),
        default=30.0,
        show_default=True,
    ),
    value_option(
        "-m --model", "MODEL", "provider:model, e.g. anthropic:claude-sonnet-4-5, offline."
    ),
    value_option("--child-model", "MODEL", "Model of child runs (default: as the prompt)."),
    limit_options("prompt"),
    worker_option("children"),
    sandbox_option,
    net_option,
    isolate_option,
    mode_option("Permission mode of sessions."),
    rules_options,
    switch_option("--trust", "Trust agent files, MCP servers and hooks."),
    store_option,
    quiet_option,
)

_token = CommandGroup("token", "", "Make, list and remove the tokens of clients.")
_serve.add_command(_token)
_token.define(
    "add",
    "service_tokens.add_token",
    """Make a token for OWNER, the name of a user or a program, and print it once.

    Sessions belong to owners: tokens of the same owner see the same sessions.
    """,
    click.argument("owner"),
    choice_option(
        "--scope scopes",
        ["read", "run", "answer", "admin"],
        "A right (default: read, run and answer). Can be given several times.",
        multiple=True,
    ),
    value_option("--usd-per-day", "USD", "Spending limit of the owner each day (UTC).", AMOUNT),
    value_option("--tokens-per-day", "N", "Token limit of the owner each day (UTC).", COUNT),
    value_option("--agent agents", "NAME", "Allow this agent only.", multiple=True),
    choice_option("--mode modes", MODES, "Let clients choose this mode.", multiple=True),
    value_option("--workspace workspaces", "NAME", "Allow this workspace only.", multiple=True),
    store_option,
    json_option,
)
_token.define(
    "list",
    "service_tokens.list_tokens",
    "List the tokens without their secrets.",
    store_option,
    json_option,
)
_token.define(
    "remove",
    "service_tokens.remove_token",
    "Remove a token; its owner keeps the sessions.",
    click.argument("token_id", metavar="ID"),
    store_option,
)

COMMANDS: dict[str, click.Command] = {"acp": _acp, "serve": _serve}
