"""Messages between the client and the daemon. Standard library only.

All messages are JSON objects; descriptors travel beside them as ancillary data.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

STATUS_FD = 3  # descriptor of bwrap to which it writes its status
GATE_FD = 4  # descriptor of bwrap on which it waits before it starts the command
FILTER_FD = 5  # descriptor of bwrap from which it reads the seccomp filter
LEFT_FD = 6  # the first process of a sandbox writes to it how many processes are left

ETC_PLACEHOLDER = "/etc of commands"  # in bwrap's arguments, for the folder that the daemon makes

MARK_VARIABLE = "MUDROOM_CALL"  # of processes that end with their owner: a path in its scratch dir

MAX_MESSAGE_BYTES = 1 << 19
_MAX_DESCRIPTORS = 32


class ResourceLimits(NamedTuple):
    """Resources that one command may use.

    Arguments:
        memory: bytes of data of each process.
        open_files: descriptors of each process.
        scratch: bytes in /tmp and the home folder, where these are in memory.
    """

    processes: int = 512
    memory: int = 4 << 30
    file_size: int = 4 << 30
    open_files: int = 4096
    scratch: int = 512 << 20


class DaemonSetup(NamedTuple):
    """First message of the client: the settings for all commands of the sandbox.

    Arguments:
        quarantine: the folder for files that are moved out of the workspace.
        limits: the fields of ResourceLimits. In tier file the limit of processes counts all threads
            of the user, so the daemon raises it by those that run already.
        uses_bwrap: True in tier full. The descriptors sent along are then those of the seccomp
            filter and of the contents of /etc; in tier file, that of the Landlock ruleset.
        seccomp_filter: the program as hexadecimal text, for tier file.
        etc_paths: the paths below /etc of the contents, in the order of their descriptors.
        restore_existing: restore protected files that a command changed, not only remove new ones.
        other_user: commands run as a user that owns nothing but the workspace.
        extra_dirs: further folders that this user must reach.
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
    """Last message about a command.

    Arguments:
        code: the exit code; negative, the signal.
        error: the reason why the command was not run, "" if it was.
        restored: protected files that were restored or removed, relative to the workspace.
        left: processes that the command left in the background and that were killed.
    """

    code: int
    error: str = ""
    restored: Sequence[str] = ()
    left: int = 0


def receive_message(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive the next message and its descriptors; None when the client has ended."""
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
