"""The daemon's entry: takes over the control socket, and serves commands. Standard library only."""

from __future__ import annotations

import gc
import os
import signal
import socket

from .bwrap_supervisor import CommandSupervisor
from .landlock_watcher import serve_commands
from .protocol import DaemonSetup, receive_message


def main() -> None:
    """Serve commands until the client ends. The control socket is descriptor 0."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    control = socket.socket(fileno=os.dup(0))
    os.set_inheritable(control.fileno(), False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    message, descriptors = receive_message(control)
    if message is None:
        return
    gc.disable()  # a collection in a forked process copies every page it touches
    setup = DaemonSetup(**message)
    if setup.uses_bwrap:
        CommandSupervisor(setup, descriptors).serve(control)
    else:
        serve_commands(control, setup, ruleset=descriptors)
