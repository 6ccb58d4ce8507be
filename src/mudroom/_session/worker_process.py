"""The program of a worker process: `python -m mudroom._session.worker_process SOCKET`.

It reads its config from the socket, builds services, and executes the runs that the session's
process sends, until that process closes the socket. Several sessions of that process can share it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from typing import cast

import msgspec

from .._adapters.workers.process.channel import Channel
from .._adapters.workers.remote.connection import MessageChannel, ToProcess
from .._adapters.workers.remote.messages import StartFailed, ToWorker, WorkerConfig
from .._adapters.workers.remote.remote_services import SessionLink
from .._adapters.workers.remote.serve import RunServer
from .._adapters.workers.remote.shared_messages import ShareProcess
from .._adapters.workers.shared.serve import SharedServer
from .._engine.recorded_conversations import PastEvents
from .._platform.event_loop import run_event_loop
from .._platform.own_process import collect_garbage_less_often, raise_open_file_limit
from ..errors import MudroomError, UsageError
from .worker_setup.cluster import adapt_to_node
from .worker_setup.process_services import build_worker_services

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1


async def serve(channel: MessageChannel[ToProcess]) -> None:
    """Execute runs until the other end of the channel is closed.

    First comes the config of a session, or that several sessions share the process.
    """
    first = await channel.receive()
    if isinstance(first, WorkerConfig):
        await _serve_session(first, channel)
    elif isinstance(first, ShareProcess):
        await SharedServer(channel, serve).serve()


async def _serve_session(config: WorkerConfig, channel: MessageChannel[ToProcess]) -> None:
    if config.has_own_files:
        config = adapt_to_node(config)
    to_runs = cast("MessageChannel[ToWorker]", channel)
    link = SessionLink(to_runs)
    past_events = PastEvents()
    try:
        built = build_worker_services(config, link, past_events)
    except MudroomError:
        raise
    except Exception as error:  # the session says so; other sessions may use the process, too
        text = f"a worker process cannot prepare the session: {type(error).__name__}: {error}"
        raise UsageError(text, where="worker") from error
    channel.start_beats()  # not before: modules of the caller may take long to import
    await RunServer(link, built.services, past_events, config.max_children).serve(to_runs)
    await built.close()


def main() -> None:
    """Serve the socket whose number is the first argument, then exit at once.

    Runs that have not ended are abandoned: their session is closed and cannot record them.
    """
    _die_with_session()
    collect_garbage_less_often()
    raise_open_file_limit()
    # Ctrl-C goes to all processes of the terminal; the session decides what it means here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(msgspec.DecodeError):
        run_event_loop(_serve_and_exit(connection))
    os._exit(1)


def _die_with_session() -> None:
    """Have the kernel kill this process when the session's is killed."""
    # The end of the socket says the same, but a process that hangs does not read it.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


async def _serve_and_exit(connection: socket.socket) -> None:
    channel = await Channel[ToProcess].open(connection, ToProcess)
    try:
        await serve(channel)
    except MudroomError as error:
        channel.send(StartFailed(str(error)))
        await channel.close()
    os._exit(0)


if __name__ == "__main__":
    main()
