"""Sandbox port: runs the commands of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

SEATBELT_MODE = "experimental-seatbelt"

SANDBOX_MODES = ("auto", "full", "file", "off", SEATBELT_MODE)
"""Names of the sandboxes that a user may choose; "auto" is the best that works."""


class CommandResult(Struct, frozen=True):
    """End of a command.

    Arguments:
        code: exit code; a negative value is minus the number of the signal that ended it.
        timed_out: true if the timeout ended the command.
        left: processes that the command had left in the background, and that were ended with it.
            0 after a timeout, and where the sandbox cannot tell (bubblewrap, or no procfs).
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

        Returns when the process of the command ends, or after the timeout. Before it returns, it
        kills all descendants of the process; a cancel kills them, too.

        Arguments:
            timeout: seconds.
            sink: receives the bytes of stdout and stderr as they arrive.
        """
        ...

    def close(self) -> None:
        """Stop helper processes; commands that still run are not killed."""
        ...
