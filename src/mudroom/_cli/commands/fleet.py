"""Commands for the worker processes of running sessions."""

from __future__ import annotations

import click

from ._options import CONTEXT_SETTINGS, json_option, value_option

_session_option = value_option("--session", "ID", "Only this session (the start of its id).")


@click.group(invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@click.pass_context
def fleet(ctx: click.Context) -> int | None:
    """Show the worker processes of running sessions, or take them out of use.

    A session has them with --worker process or --worker ray.
    """
    if ctx.invoked_subcommand:
        return None
    return ctx.invoke(show_status, session=None, as_json=False)


@fleet.command("status", context_settings=CONTEXT_SETTINGS)
@_session_option
@json_option
def show_status(session: str | None, as_json: bool) -> int:
    """Show runs, memory and lease of each worker (the default)."""
    from ..actions.fleet import print_status

    return print_status(session or "", as_json=as_json)


@fleet.command("drain", context_settings=CONTEXT_SETTINGS)
@click.argument("worker", required=False)
@_session_option
@click.option("--wait", is_flag=True, help="Wait until the workers have ended.")
def drain(worker: str | None, session: str | None, wait: bool) -> int:
    """Give a worker no further children. It ends when those that it has are finished.

    WORKER is its number, or the name of a machine: all workers there. Without it all workers are
    drained. If no other worker is left, a new one starts with the next child.

    \b
    mudroom fleet drain 2             the second worker of the only session with workers
    mudroom fleet drain node-b        all workers on this machine
    """
    from ..actions.fleet import drain_workers

    return drain_workers(worker or "", session or "", wait=wait)


COMMANDS = {"fleet": fleet}
