"""Background commands: work of a tool that continues after its call has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from .._core.tools import ToolResult, clean_result
from .changes.watch import ChangeWindow
from .run_context import RunContext

STARTED = (
    "Started {id} in the background. A task-notification comes when it ends; you know nothing of "
    "its result before."
)

_STOPPED = "It was stopped."


def start_command(
    run: RunContext, work_id: str, title: str, work: Coroutine[Any, Any, ToolResult]
) -> ToolResult:
    """Start work in the background and return the result of its call."""
    run.background.add_command(work_id, title, _observe(run, work))
    return ToolResult(STARTED.format(id=work_id), detail={"command": work_id, "background": True})


async def _observe(run: RunContext, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
    """Wait for the work; return its result with the files that changed meanwhile.

    It ends with a result also when it is cancelled or fails.
    """
    watch = run.services.change_watch
    window = ChangeWindow(watch, run.environment.workspace, ()) if watch else None
    try:
        if window:
            await window.start()
        result = await work
    except asyncio.CancelledError:
        result = ToolResult(_STOPPED, error=True)
    except Exception as error:  # noqa: BLE001  the notification states any failure
        result = ToolResult(f"It failed: {type(error).__name__}: {error}", error=True)
    finally:
        work.close()
    if window:
        result = await window.close(result)
    result = clean_result(replace(result, text=run.services.redact(result.text)))
    run.evidence.add_files(result)
    return result
