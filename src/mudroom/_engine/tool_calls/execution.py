"""Execution of one tool call: run the tool, and observe the files that it changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import structs

from ..._core.ports import ToolContext
from ..._core.tools import Effect, Tool, ToolResult
from ...errors import MudroomError, WorkspaceError
from ..call_context import CallContext
from ..changes.unwatched import explain_unwatched
from ..changes.watch import ChangeWindow, WriteWindow, add_writes
from ..run_context import RunContext
from .prepared_call import PreparedCall

OUTPUT_CAP = 50_000
"""Maximum characters of one result for the model; the whole text is in a spill file."""

_SPILL_NOTICE_CHARACTERS = 400
"""Characters of OUTPUT_CAP reserved for the notice between head and tail."""


async def act_and_observe(context: CallContext, prepared: PreparedCall) -> ToolResult:
    """Run the tool; return its result with the files that it changed."""
    services = context.run.services
    watch = services.change_watch
    tool = prepared.tool
    call_id = prepared.call.id
    assert tool is not None
    if tool.effect is Effect.PURE:
        return add_writes(await run_tool(tool, context, prepared.arguments), context.writes)
    # If the call is cut off, the end of the run closes its window.
    windows = context.run.evidence.open_windows
    unwatched = ""
    if services.recorded_work is None:  # recorded results have their reasons already
        unwatched = explain_unwatched(tool, context.sandbox.tier)
    if watch and tool.effect is Effect.EFFECTFUL:
        workspace = context.run.environment.workspace
        windows[call_id] = window = ChangeWindow(
            watch, workspace, context.writes, context.run.run_id, unwatched
        )
        await window.start()
    else:
        windows[call_id] = WriteWindow(context.writes, unwatched)
    result = await run_tool(tool, context, prepared.arguments)
    result = await windows[call_id].close(result)  # the task tool puts in a window of its own
    del windows[call_id]
    return result


async def run_tool(tool: Tool, context: ToolContext, arguments: object) -> ToolResult:
    """Run a tool. An exception becomes an error result, except a cancel of the present task.

    Arguments:
        arguments: the parsed ones.
    """
    name = tool.name
    try:
        result = await tool.run(context, arguments)
        if not isinstance(result, ToolResult):
            raise TypeError(f"it returned {type(result).__name__}, not ToolResult")
        return result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        cause = str(error) or "something it waited for was cancelled"
        return ToolResult(f"{name} failed: {cause}", error=True)
    except MudroomError as error:
        return ToolResult(str(error), error=True)
    except Exception as error:  # noqa: BLE001  a tool may raise anything; the model reads the error
        return ToolResult(f"{name} failed: {type(error).__name__}: {error}", error=True)


def warn_of_overlaps(run: RunContext, prepared: PreparedCall, result: ToolResult) -> ToolResult:
    """Return the result with warnings about its files that another running run changed."""
    overlaps = run.services.live_overlaps
    if not overlaps:
        return result
    paths = [*result.reads, *result.changes, *result.observed_changes]
    if prepared.tool and prepared.tool.path_argument:
        path = prepared.checked_arguments.get(prepared.tool.path_argument)
        if isinstance(path, str) and path:
            with suppress(WorkspaceError):
                paths.append(run.environment.workspace.locate(path))
    return overlaps.warn(run.run_id, paths, result)


def redact_result(run: RunContext, result: ToolResult) -> ToolResult:
    """Return the result without secrets."""
    redact = run.services.redact
    # One pass finds out that no text has a secret, which is usual.
    texts = (result.text, result.display, result.context)
    joined = "\0".join(texts)
    if redact(joined) == joined:
        return result
    text, display, context = map(redact, texts)
    return structs.replace(result, text=text, display=display, context=context)


def cap_result(context: CallContext, result: ToolResult) -> ToolResult:
    """Return the result with at most OUTPUT_CAP characters: head and tail.

    The whole text is in a spill file.
    """
    text = result.text
    if len(text) <= OUTPUT_CAP:
        return result
    path = result.spill
    if not path:
        path = context.spill_path("output")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    half = (OUTPUT_CAP - _SPILL_NOTICE_CHARACTERS) // 2
    notice = (
        f"\n\n[… {len(text) - 2 * half:,} characters left out; the whole is in {path}: "
        "read it with offset and limit …]\n\n"
    )
    return structs.replace(result, text=text[:half] + notice + text[-half:], spill=path)
