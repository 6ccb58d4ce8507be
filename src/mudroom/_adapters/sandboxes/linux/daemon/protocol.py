"""Messages between the client and the daemon. Standard library only.

All messages are JSON objects; descriptors travel beside them as ancillary data.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

STATUS_FD = 3  # bwrap writes its status here
GATE_FD = 4  # bwrap waits here before it starts the command
FILTER_FD = 5  # bwrap reads the seccomp filter from here
LEFT_FD = 6  # a sandbox's first process writes the number of remaining processes here

ETC_PLACEHOLDER = "/etc of commands"  # in bwrap's arguments, for the folder made by the daemon

MARK_VARIABLE = "MUDROOM_CALL"  # in processes that end with their owner: a path in its scratch dir

MAX_MESSAGE_BYTES = 1 << 19
_MAX_DESCRIPTORS = 32


class ResourceLimits(NamedTuple):
    """Limits on a command's resources.

    Arguments:
        memory: bytes of data per process.
        open_files: descriptors per process.
        scratch: bytes in /tmp and the home folder, where these are in memory.
    """

    processes: int = 512
    memory: int = 4 << 30
    file_size: int = 4 << 30
    open_files: int = 4096
    scratch: int = 512 << 20


class DaemonSetup(NamedTuple):
    """The client's first message: the settings for all of the sandbox's commands.

    Arguments:
        quarantine: the folder for files moved out of the workspace.
        limits: the fields of ResourceLimits. In tier file, the limit on processes counts all of the
            user's threads, so the daemon raises it by those already running.
        uses_bwrap: True in tier full. The descriptors sent along are then for the seccomp filter
            and the contents of /etc; in tier file, for the Landlock ruleset.
        seccomp_filter: the program as hexadecimal text, for tier file.
        etc_paths: the paths of the contents below /etc, in the order of their descriptors.
        restore_existing: also restore protected files changed by a command, not only remove new
            ones.
        other_user: commands run as a user that owns nothing but the workspace.
        extra_dirs: other folders that this user must reach.
    """

    workspace: str
    quarantine: str
    limits: dict[str, int]
    uses_bwrap: bool = False
    seccomp_filter: str = ""
    etc_paths: Sequence[str] = ()
    restore_existing: bool = False
    other_user: bool = False
    extra_dirs: Sequence[str] = ()


class Outcome(NamedTuple):
    """The last message about a command.

    Arguments:
        code: the exit code; if negative, the signal.
        error: why the command was not run, "" if it was.
        restored: protected files that were restored or removed, relative to the workspace.
        left: number of processes the command left in the background, which were killed.
    """

    code: int
    error: str = ""
    restored: Sequence[str] = ()
    left: int = 0


def receive_message(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive the next message and its descriptors; None once the client has ended."""
    data, descriptors, _, _ = socket.recv_fds(
        control, MAX_MESSAGE_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
    )
    return (json.loads(data) if data else None), descriptors


def send_outcome(result_socket: socket.socket, outcome: Outcome) -> None:
    with result_socket:
        try:
            result_socket.sendall(json.dumps(outcome._asdict()).encode())
        except OSError:
            pass  # the client has ended


def describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
