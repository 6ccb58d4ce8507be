"""Runs the ACP server: an editor sends requests on stdin and reads the answers from stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mudroom_hosts.acp.server import AcpServer
from mudroom_hosts.acp.setup import CommandLine
from mudroom_hosts.line_streams import LineInput, LineOutput

from ...._platform.event_loop import run_event_loop
from ...output.notices.log import show_log
from ...output.progress import print_notice
from ...output.signals import handle_signals
from .command_line import make_command_line


def serve_acp(flags: Mapping[str, object], *, reads_unsaved: bool, quiet: bool) -> int:
    """Serve one editor until it closes its end.

    Arguments:
        flags: settings given as flags, for all sessions.
        reads_unsaved: whether `read` shows text that the editor has not saved yet.
    """
    command_line = make_command_line(flags, reads_unsaved=reads_unsaved)
    return run_event_loop(_serve(command_line, quiet=quiet))


async def _serve(command_line: CommandLine, *, quiet: bool) -> int:
    shown: set[str] = set()

    def notify(text: str) -> None:
        if text not in shown and not quiet:
            shown.add(text)
            print_notice(text)

    def stop() -> bool:
        # The editor may have stopped reading; do not wait for it to take the remaining output.
        output.hurry()
        return server.stop()

    def pause() -> bool:
        output.hurry()
        return server.pause()

    def on_closed(reason: str) -> None:
        if reason:
            notify(f"{reason}. The work stops; session/load continues the sessions.")
        server.stop()

    output = LineOutput(sys.stdout.fileno(), on_closed)
    server = AcpServer(command_line, output.write, notify)
    with handle_signals(stop, pause, exits_after=True, must_end=True) as signals, show_log(notify):
        try:
            await server.serve(LineInput(sys.stdin.fileno()).read())
        finally:
            await output.close()
    return 128 + signals[0] if signals else 0
