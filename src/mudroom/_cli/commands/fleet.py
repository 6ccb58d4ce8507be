"""Commands for the worker processes of running sessions."""

from __future__ import annotations

import click

from ._definitions import CommandGroup
from ._options import flag_option, json_option, value_option

_session_option = value_option("--session", "ID", "Only this session (the start of its id).")

_fleet = CommandGroup(
    "fleet",
    "fleet.print_status",
    """Show the worker processes of running sessions, or take them out of use.

    A session has them with --worker process or --worker ray.
    """,
)
_fleet.define(
    "status",
    "fleet.print_status",
    "Show runs, memory and lease of each worker (the default).",
    _session_option,
    json_option,
)
_fleet.define(
    "drain",
    "fleet.drain_workers",
    """Give a worker no further children. It ends when those that it has are finished.

    WORKER is its number, or the name of a machine: all workers there. Without it all workers are
    drained. If no other worker is left, a new one starts with the next child.

    \b
    mudroom fleet drain 2             the second worker of the only session with workers
    mudroom fleet drain node-b        all workers on this machine
    """,
    click.argument("worker", required=False),
    _session_option,
    flag_option("--wait", "Wait until the workers have ended."),
)

COMMANDS: dict[str, click.Command] = {"fleet": _fleet}
