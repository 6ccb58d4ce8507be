"""The command `serve`: sessions over HTTP, and the tokens of its clients."""

from __future__ import annotations

import click

from ._options import (
    AMOUNT,
    CONTEXT_SETTINGS,
    COUNT,
    MODES,
    complete_folders,
    json_option,
    listen_details,
    quiet_option,
    rules_options,
    sandbox_option,
    store_option,
    switch_option,
    value_option,
    worker_option,
)


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@click.option(
    "-C",
    "cwd",
    default=".",
    metavar="DIR",
    shell_complete=complete_folders,
    help='Folder of the workspace "default".',
)
@click.option("--workspace", "workspaces", multiple=True, metavar="NAME=DIR", help="A workspace.")
@click.option(
    "--listen", default="127.0.0.1:8700", show_default=True, metavar="HOST:PORT", help="Address."
)
@listen_details
@value_option("--login-header", "NAME", "Header in which the proxy names the user.")
@click.option(
    "--login-from",
    "login_networks",
    multiple=True,
    metavar="ADDRESS",
    help="Address of the proxy that may send it, or a range such as 10.0.0.0/24.",
)
@value_option("--login-usd-per-day", "USD", "Spending limit of each such user each day.", AMOUNT)
@value_option("--login-tokens-per-day", "N", "Token limit of each such user each day.", COUNT)
@click.option(
    "--parallel",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    metavar="N",
    help="Prompts at the same time; more wait.",
)
@value_option("--parallel-owner", "N", "Those of one owner (default: 3/4 of --parallel).", COUNT)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="N",
    help="Time for prompts to end when the server stops.",
)
@value_option("-m --model", "MODEL", "provider:model, e.g. anthropic:claude-sonnet-4-5, offline.")
@value_option("--child-model", "MODEL", "Model of child runs (default: as the prompt).")
@value_option("--max-turns", "N", "Maximum model calls of a prompt; one more for a summary.", COUNT)
@value_option("--max-minutes", "N", "Time limit of a prompt in minutes.", AMOUNT)
@value_option("--max-tokens", "N", "Token limit of a prompt (input + output).", COUNT)
@value_option("--max-budget-usd", "USD", "Spending limit of a prompt.", AMOUNT)
@worker_option("children")
@sandbox_option
@switch_option("--allow-net", "Let commands and web tools reach the network.")
@switch_option("--isolate", "Give children that may change files own copies.")
@click.option("--permission-mode", type=click.Choice(MODES), help="Permission mode of sessions.")
@rules_options
@switch_option("--trust", "Trust agent files, MCP servers and hooks.")
@store_option
@quiet_option
@click.pass_context
def serve(
    ctx: click.Context,
    cwd: str,
    workspaces: tuple[str, ...],
    listen: str,
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
    host_names: tuple[str, ...],
    login_header: str | None,
    login_networks: tuple[str, ...],
    login_usd_per_day: float | None,
    login_tokens_per_day: int | None,
    parallel: int,
    parallel_owner: int | None,
    drain_seconds: float,
    quiet: bool,
    **flags: object,
) -> int | None:
    """Serve sessions over HTTP: events in, a stream of events out, and OpenAI's API.

    Clients need a token. Work of a server that was killed continues when it is started again.

    \b
    mudroom serve token add alice --usd-per-day 5
    mudroom serve -C ~/project --max-budget-usd 1
    """
    if ctx.invoked_subcommand:
        return None
    from ..actions.serve_http import ServeFlags, serve_http

    chosen = ServeFlags(
        listen=listen,
        workspaces=workspaces,
        parallel=parallel,
        per_owner=parallel_owner,
        drain_seconds=drain_seconds,
        tls_cert=tls_cert or "",
        tls_key=tls_key or "",
        is_behind_proxy=behind_proxy,
        host_names=host_names,
        login_header=login_header or "",
        login_networks=login_networks,
        login_usd_per_day=login_usd_per_day,
        login_tokens_per_day=login_tokens_per_day,
        is_quiet=quiet,
    )
    return serve_http(cwd, flags, chosen)


@serve.group("token", context_settings=CONTEXT_SETTINGS)
def token() -> None:
    """Make, list and remove the tokens of clients."""


@token.command("add", context_settings=CONTEXT_SETTINGS)
@click.argument("owner")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "run", "answer", "admin"]),
    multiple=True,
    help="A right (default: read, run and answer). Can be given several times.",
)
@value_option("--usd-per-day", "USD", "Spending limit of the owner each day (UTC).", AMOUNT)
@value_option("--tokens-per-day", "N", "Token limit of the owner each day (UTC).", COUNT)
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Allow this agent only.")
@click.option(
    "--mode", "modes", multiple=True, type=click.Choice(MODES), help="Let clients choose this mode."
)
@click.option(
    "--workspace", "workspaces", multiple=True, metavar="NAME", help="Allow this workspace only."
)
@store_option
@json_option
def add_token(owner: str, as_json: bool, store: str | None, **fields: object) -> int:
    """Make a token for OWNER, the name of a user or a program, and print it once.

    Sessions belong to owners: tokens of the same owner see the same sessions.
    """
    from ..actions import service_tokens as tokens

    return tokens.add_token(owner, as_json=as_json, store=store, **fields)


@token.command("list", context_settings=CONTEXT_SETTINGS)
@store_option
@json_option
def list_tokens(as_json: bool, store: str | None) -> int:
    """List the tokens without their secrets."""
    from ..actions import service_tokens as tokens

    return tokens.list_tokens(as_json=as_json, store=store)


@token.command("remove", context_settings=CONTEXT_SETTINGS)
@click.argument("token_id", metavar="ID")
@store_option
def remove_token(token_id: str, store: str | None) -> int:
    """Remove a token; its owner keeps the sessions."""
    from ..actions import service_tokens as tokens

    return tokens.remove_token(token_id, store=store)


COMMANDS: dict[str, click.Command] = {"serve": serve}
