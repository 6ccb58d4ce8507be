"""The command for editors: `acp`."""

from __future__ import annotations

import click

from ._definitions import define_command
from ._options import flag_option, mode_option, quiet_option, switch_option, value_option

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

COMMANDS: dict[str, click.Command] = {"acp": _acp}
