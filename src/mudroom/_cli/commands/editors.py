"""The command for editors: `acp`."""

from __future__ import annotations

import click

from ._options import CONTEXT_SETTINGS, MODES, quiet_option, value_option


@click.command(context_settings=CONTEXT_SETTINGS)
@value_option("-m --model", "MODEL", "Model of new sessions; the editor can change it.")
@click.option("--permission-mode", type=click.Choice(MODES), help="Mode of new sessions.")
@click.option("--trust", is_flag=True, default=None, help="Trust the folders of this start.")
@click.option("--unsaved", is_flag=True, help="Let `read` show text that is not saved yet.")
@click.option("--setup", "is_check", is_flag=True, help="Say whether a model is set up, and exit.")
@quiet_option
def acp(
    model: str | None,
    permission_mode: str | None,
    trust: bool | None,
    unsaved: bool,
    is_check: bool,
    quiet: bool,
) -> int:
    """Serve an editor with the Agent Client Protocol, on stdin and stdout.

    An editor starts this command. It shows children as sessions of their own, if it can.
    """
    flags = {"model": model, "permission_mode": permission_mode, "trust": trust}
    from ..actions.serve_acp import check_setup, serve_acp

    if is_check:
        return check_setup(flags)
    return serve_acp(flags, reads_unsaved=unsaved, quiet=quiet)


COMMANDS: dict[str, click.Command] = {"acp": acp}
