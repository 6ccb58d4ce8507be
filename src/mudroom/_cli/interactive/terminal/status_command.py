"""The user's own status line: a command that prints the line below the prompt.

The command is the setting `status_line` in the user's own settings file. A project file cannot
set it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...._platform.time_limits import time_limit
from ...._projections.safe_text import sanitize_line
from ...._version import __version__

if TYPE_CHECKING:
    from ..conversation import Conversation

# Minimum seconds between two calls of the command.
MIN_PERIOD = 0.3

# Seconds after which the command is stopped.
MAX_SECONDS = 5.0

_MAX_LENGTH = 500


class StatusCommand:
    """Runs the command after each change and keeps the first line of its output."""

    def __init__(self, command: str, on_change: Callable[[], None]) -> None:
        self.line = ""
        self._command = command
        self._on_change = on_change
        self._conversation: Conversation | None = None
        self._is_changed = asyncio.Event()

    def attach(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.refresh()

    def refresh(self) -> None:
        self._is_changed.set()

    async def run(self) -> None:
        while True:
            await self._is_changed.wait()
            self._is_changed.clear()
            if self._conversation and self._command:
                line = await self._call(describe_state(self._conversation))
                if line != self.line:
                    self.line = line
                    self._on_change()
            await asyncio.sleep(MIN_PERIOD)

    async def _call(self, state: dict[str, Any]) -> str:
        process = await asyncio.create_subprocess_shell(
            self._command,
            cwd=state["cwd"],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            # A separate process group, so that a whole shell pipeline can be killed.
            start_new_session=True,
        )
        try:
            async with time_limit(MAX_SECONDS):
                output, _ = await process.communicate(msgspec.json.encode(state) + b"\n")
        except (TimeoutError, asyncio.CancelledError) as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if isinstance(error, asyncio.CancelledError):  # the prompt is closing
                raise
            return f"status_line: no output within {MAX_SECONDS:.0f} s"
        if process.returncode:
            return f"status_line: the command ended with {process.returncode}"
        first, _, _ = output.decode("utf-8", "replace").strip().partition("\n")
        return sanitize_line(first, _MAX_LENGTH)


def describe_state(conversation: Conversation) -> dict[str, Any]:
    """Describe the state that the command reads as JSON, with names as in other programs."""
    session = conversation.session
    status = conversation.status
    window = status.context_window
    used = status.context_tokens
    children = [run for run in conversation.tree.walk() if run.depth]
    return {
        "hook_event_name": "Status",
        "session_id": session.id,
        "cwd": session.cwd,
        "version": __version__,
        "model": {"id": status.model, "display_name": status.model.rpartition(":")[2]},
        "workspace": {"current_dir": session.cwd, "project_dir": session.cwd},
        "cost": {
            "total_cost_usd": None if status.has_unknown_costs else status.usd,
            "total_tokens": status.total_tokens,
        },
        "context_window": {
            "context_window_size": window or None,
            "used_tokens": used,
            "used_percentage": round(100 * used / window) if window else None,
        },
        "permission_mode": status.mode,
        "sandbox": status.sandbox,
        "children": {
            "total": len(children),
            "working": sum(run.report is None for run in children),
        },
    }
