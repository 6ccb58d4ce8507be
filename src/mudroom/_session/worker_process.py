"""A worker process on this machine: `python -m mudroom._session.worker_process PROGRAM SOCKET`.

It executes a program, "module:function", until the session's process closes the socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from .._core.ports import RunLink
from .._peers import SocketLink
from .._platform.event_loop import run_event_loop
from .._platform.imports import import_object

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Execute the program on the socket, then exit at once.

    Unfinished runs are abandoned: their session is closed and cannot record them.
    """
    _die_with_session()
    # Ctrl-C goes to all processes of the terminal; the session decides what it means here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    program, number = sys.argv[1:]
    serve = import_object(program)
    with contextlib.suppress(msgspec.DecodeError):
        run_event_loop(_serve_and_exit(serve, socket.socket(fileno=int(number))))
    os._exit(1)


def _die_with_session() -> None:
    """Have the kernel kill this process when the session's is killed."""
    # The closed socket says the same, but a hanging process does not read it.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


async def _serve_and_exit(
    serve: Callable[[RunLink], Coroutine[Any, Any, None]], connection: socket.socket
) -> None:
    link = await SocketLink.open(connection)
    await serve(link)
    await link.close()
    os._exit(0)


if __name__ == "__main__":
    main()
