"""Sandbox port: where the commands of a run are executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

SEATBELT_MODE = "experimental-seatbelt"

SANDBOX_MODES = ("auto", "full", "file", "off", SEATBELT_MODE)
"""Sandboxes a user may choose; "auto" picks the strongest one that works."""


class CommandResult(Struct, frozen=True):
    """How a command ended.

    Arguments:
        code: exit code; a negative value is minus the number of the signal that ended it.
        timed_out: true if the timeout ended the command.
        left: number of processes the command had left in the background, which were killed. 0
            after a timeout and where the sandbox cannot tell (bubblewrap, or no procfs).
    """

    code: int
    timed_out: bool = False
    left: int = 0


class Sandbox(Protocol):
    """A place to run commands."""

    @property
    def tier(self) -> str:
        """Protection level: "full", "file", "ask", "refuse" or "off"."""
        ...

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run a bash command in the workspace.

        Returns when the command's process ends or the timeout passes, after killing all its
        descendants. A cancel kills them as well.

        Arguments:
            timeout: seconds.
            sink: receives the bytes of stdout and stderr as they arrive.
        """
        ...

    def close(self) -> None:
        """Stop helper processes. Commands still running are not killed."""
        ...
