"""Serves a host on stdin and stdout, as editors and agent SDKs start mudroom."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from mudroom_hosts.line_streams import LineOutput

from ...errors import SessionPaused
from ..output.notices.log import show_log
from ..output.signals import handle_signals


class LineServer(Protocol):
    """A server that a signal ends; its methods return False if nothing is running in it."""

    def stop(self) -> bool: ...

    def pause(self) -> bool: ...


Server = TypeVar("Server", bound=LineServer)


async def serve_lines(
    make_server: Callable[[Callable[[bytes], None]], Server],
    serve: Callable[[Server], Coroutine[Any, Any, None]],
    show: Callable[[str], None],
    *,
    remedy: str,
) -> int:
    """Serve until the input ends or a signal arrives; return the exit code.

    `remedy` says how to continue the work after the output has failed.
    """

    def on_closed(reason: str) -> None:
        if reason:
            show(f"{reason}. The work stops; {remedy}.")
        server.stop()

    def end(end_server: Callable[[], bool]) -> bool:
        # The host may have stopped reading; do not wait for it to take the rest of the output.
        output.hurry()
        return end_server()

    output = LineOutput(sys.stdout.fileno(), on_closed)
    server = make_server(output.write)
    stop, pause = partial(end, server.stop), partial(end, server.pause)
    with handle_signals(stop, pause, exits_after=True, must_end=True) as signals, show_log(show):
        try:
            with suppress(SessionPaused):  # as the signal asked
                await serve(server)
        finally:
            await output.close()
    return 128 + signals[0] if signals else 0
