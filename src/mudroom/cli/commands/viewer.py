"""The commands of the run viewer: `view` and `vis`."""

from __future__ import annotations

import click

from ..actions.load_settings import CONTEXT_SETTINGS, load_settings

_LOGS = click.Choice(["claude", "codex"])


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", required=False, default="", metavar="[RUN]")
@click.option(
    "--from", "foreign", type=_LOGS, help="RUN is the path of a session log of this program."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7575,
    show_default=True,
    help="First port to try; 0 is any.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at; the token guards it, nothing else does.",
)
@click.option(
    "--open/--no-open", "open_it", default=True, help="Open a browser, or only print the address."
)
@click.option(
    "--export",
    "target",
    metavar="FILE",
    help="Write the page with this session in it, and serve nothing; - is stdout.",
)
def view(
    session: str, foreign: str | None, port: int, host: str, open_it: bool, target: str | None
) -> int:
    """Show runs in a browser: tree, timeline, transcript, contexts, ledger.

    RUN is an id from `mudroom runs`, or the beginning of one; by default the last.
    """
    from ..actions.serve_viewer import export_html, serve_viewer

    home = load_settings(".").home
    if target:
        return export_html(home, session, target, foreign=foreign or "")
    return serve_viewer(home, session, foreign=foreign or "", host=host, port=port, open_it=open_it)


COMMANDS: dict[str, click.Command] = {"view": view, "vis": view}
