"""Shell commands typed as `!command`: run in the session's sandbox, without a permission check."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any

from ...._adapters.output_filters import Redactor
from ...._adapters.tools.bash import BASH
from ...._core.ports import Sandbox, Workspace
from ...._core.tools import ToolResult
from ...._platform.private_files import make_spill_file
from ...._session.session import Session


class ShellEscape:
    """The port ToolContext for the bash tool when the user calls it.

    Arguments:
        session: provides the sandbox, the workspace and the redaction.
        home: mudroom's state folder, for long output.
    """

    def __init__(self, session: Session, home: str) -> None:
        self.run_id = "shell"
        self.traceparent = ""
        self.turn = 0
        self.memo: dict[str, Any] = {}
        self.workspace: Workspace = session.workspace
        self.sandbox: Sandbox = session.sandbox
        self.redact = Redactor(os.environ)
        self._folder = os.path.join(home, "spills", session.id)

    async def run(self, command: str) -> str:
        """Run a command to its end; return its output, cut as for a model. Cancelling kills it."""
        try:
            result = await BASH.run(self, BASH.parse({"command": command}))
        except ValueError as error:
            return str(error)
        return result.text

    async def run_detachable(
        self, title: str, work: Coroutine[Any, Any, ToolResult], on_detach: Callable[[], object]
    ) -> ToolResult:
        # There is no run that could read the result later.
        return await work

    def spill_path(self, name: str) -> str:
        return make_spill_file(self._folder, f"shell-{name}")
