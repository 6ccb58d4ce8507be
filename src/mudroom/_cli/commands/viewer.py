"""The command of the run viewer."""

from __future__ import annotations

from typing import Any

import click

from ._options import CONTEXT_SETTINGS, store_option


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("session", required=False, metavar="[RUN]")
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
    help="Address to listen on. Only the token in the URL protects it.",
)
@click.option(
    "--open/--no-open",
    "open_browser",
    default=True,
    help="Open a browser, or only print the address.",
)
@click.option(
    "--export",
    "target",
    metavar="FILE",
    help="Write a page with this session to FILE and start no server; - is stdout.",
)
@store_option
def view(session: str | None, target: str | None, store: str | None, **options: Any) -> int:
    """Show runs in a browser: tree, timeline, transcripts, ledger.

    RUN is an id from `mudroom runs`, the beginning of one, or a name; the default is the last
    session of this folder, else the last of all.
    """
    if target:
        from ..actions.export import export_html

        return export_html(session or "", target, store=store)

    from ..actions.serve_viewer import serve_viewer

    return serve_viewer(session or "", store=store, **options)


COMMANDS: dict[str, click.Command] = {"view": view}
