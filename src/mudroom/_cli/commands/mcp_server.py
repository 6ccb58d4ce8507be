"""The command `mcp serve`: mudroom as an MCP server."""

from __future__ import annotations

import click

from ._options import (
    AMOUNT,
    CONTEXT_SETTINGS,
    COUNT,
    MODES,
    complete_folders,
    listen_details,
    quiet_option,
    rules_option,
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
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "full", "file", "off", "experimental-seatbelt"]),
    help='Sandbox for shell commands ("off" disables it).',
)
@click.option(
    "--allow-net", is_flag=True, default=None, help="Let commands and web tools reach the network."
)
@click.option(
    "--isolate", is_flag=True, default=None, help="Give children that may change files own copies."
)
@click.option(
    "--permission-mode",
    type=click.Choice(MODES),
    help="Permission mode when no rule matches (default: the user of the host is asked).",
)
@rules_option("allowed", 'Allow without asking: "Bash(git diff:*),Edit".')
@rules_option("disallowed", 'Never allow: "Bash(git push:*)".')
@click.option(
    "--trust",
    is_flag=True,
    default=None,
    help="Trust the agent files, MCP servers and hooks of this folder.",
)
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
    from ..actions.programs.serve_mcp import McpServeFlags, serve_mcp

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
