"""`!command` at the prompt: run in the session's sandbox, as the model's own commands are, by the person's wish alone."""

from __future__ import annotations

import os
import time
from typing import Any

from ..._core.ports import Sandbox, Workspace
from ...session import Session
from ...tools.bash import BASH


class ShellEscape:
    """What the bash tool may touch when a person uses it (the port ToolContext).

    Arguments:
        session: whose sandbox, folder and tool are used. home: where long output is kept.
    """

    def __init__(self, session: Session, home: str) -> None:
        self.run_id, self.turn = "shell", 0
        self.memo: dict[str, Any] = {}
        self.workspace: Workspace = session.workspace
        self.sandbox: Sandbox = session.sandbox
        self.redact = session.redact
        self._folder = os.path.join(home, "spills", session.id)

    async def run(self, command: str) -> str:
        """Run it to its end; its output, cut as a model would read it. Cancelling kills it."""
        try:
            result = await BASH.run(self, BASH.parse({"command": command}))
        except ValueError as error:
            return str(error)
        return result.text

    def spill(self, name: str) -> str:
        """Path of a new file for output that is too long."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        return os.path.join(self._folder, f"shell-{time.time_ns()}-{name}.txt")
