"""Program of a worker process: `python -m mudroom.worker_process SOCKET`.

It reads its config from the socket, builds services, and executes the runs that the session's
process sends, until that process closes the socket.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

import msgspec

from ._platform.event_loop import run_event_loop
from ._platform.garbage_collector import collect_garbage_less_often
from ._platform.open_files import raise_open_file_limit
from .projections.past_events import PastEvents
from .worker_services import build_worker_services
from .workers.process.channel import Channel
from .workers.process.messages import ToWorker, WorkerConfig
from .workers.process.remote_services import SessionLink
from .workers.process.serve import RunServer


async def serve(connection: socket.socket) -> None:
    """Execute runs until the other end of the connection is closed."""
    channel = await Channel[ToWorker].open(connection, WorkerConfig | ToWorker)
    config = await channel.receive()
    if not isinstance(config, WorkerConfig):
        return
    link = SessionLink(channel)
    past_events = PastEvents()
    services = build_worker_services(config, link, past_events)
    await RunServer(link, services, past_events, config.max_children).serve(channel)
    services.environments.shared.sandbox.close()


def main() -> None:
    """Serve the socket whose number is the first argument, then exit at once.

    Runs that have not ended are abandoned: their session is closed and cannot record them.
    """
    collect_garbage_less_often()
    raise_open_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(msgspec.DecodeError):
        run_event_loop(_serve_and_exit(connection))
    os._exit(1)


async def _serve_and_exit(connection: socket.socket) -> None:
    await serve(connection)
    os._exit(0)


if __name__ == "__main__":
    main()
