"""Background commands: work of a tool that continues after its call has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from .._core.tools import ToolResult, clean_result
from .changes.watch import ChangeWindow, WriteWindow
from .evidence import CallWindow
from .run_context import RunContext

STARTED = (
    "Started {id} in the background. A task-notification comes when it ends; you know nothing of "
    "its result before."
)

_STOPPED = "It was stopped."


def start_command(
    run: RunContext,
    work_id: str,
    title: str,
    work: Coroutine[Any, Any, ToolResult],
    unwatched: str,
) -> ToolResult:
    """Start work in the background and return the result of its call.

    Arguments:
        unwatched: why the work may change files that nothing compares, or "".
    """
    run.background.add_command(work_id, title, _observe(run, work, unwatched=unwatched))
    return _make_start_result(work_id)


def _make_start_result(work_id: str) -> ToolResult:
    return ToolResult(STARTED.format(id=work_id), detail={"command": work_id, "background": True})


async def run_detachable(
    run: RunContext,
    work_id: str,
    call_id: str,
    title: str,
    work: Coroutine[Any, Any, ToolResult],
    on_detach: Callable[[], object],
) -> ToolResult:
    """Wait for work and return its result, or that of its start if it is detached before its end.

    Arguments:
        call_id: the call that waits. Its window stays open until the end of the work.
        on_detach: called when the work is detached.
    """
    task = asyncio.create_task(work)
    released: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    run.background.waited_for[work_id] = lambda: released.done() or released.set_result(True)
    try:
        await asyncio.wait((task, released), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # read it, or asyncio logs it as never retrieved
        raise
    finally:
        del run.background.waited_for[work_id]
    if task.done():
        return task.result()
    on_detach()
    window = run.evidence.open_windows.get(call_id)
    run.evidence.open_windows[call_id] = WriteWindow(())
    run.background.add_command(work_id, title, _observe(run, _wait_for(task), window))
    return _make_start_result(work_id)


async def _wait_for(task: asyncio.Task[ToolResult]) -> ToolResult:
    return await task


async def _observe(
    run: RunContext,
    work: Coroutine[Any, Any, ToolResult],
    window: CallWindow | None = None,
    *,
    unwatched: str = "",
) -> ToolResult:
    """Wait for the work; return its result with the files that changed meanwhile.

    It ends with a result also when it is cancelled or fails.

    Arguments:
        window: the open window of the call that started the work; None opens one.
        unwatched: for the window that is opened.
    """
    watch = run.services.change_watch
    try:
        if window is None and watch:
            window = new = ChangeWindow(watch, run.environment.workspace, (), run.run_id, unwatched)
            await new.start()
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
