"""Execution of one tool call: run the tool, and observe the files that it changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from ..._core.messages import ToolCallBlock
from ..._core.ports import ToolContext, ToolHookDecision
from ..._core.tool_names import (
    FORWARDING_TOOL,
    REPLACEMENTS,
    SERVER_PREFIX,
    STAND_INS,
    add_implied_arguments,
    normalize_tool_name,
    split_editor_call,
)
from ..._core.tools import Effect, Tool, ToolResult
from ...errors import MudroomError, WorkspaceError, suggest_names
from ..call_context import CallContext
from ..changes.watch import ChangeWindow, WriteWindow, add_writes, explain_unwatched
from ..run_context import RunContext

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


MAX_QUOTED_ARGUMENTS = 200
"""Characters of malformed arguments or of a command that an error message quotes."""


class PreparedCall(Struct, frozen=True):
    """A tool call after lookup and check: it can run, or `refusal` says why not.

    Arguments:
        hook: the decision of a hook about the call, if there is one.
    """

    call: ToolCallBlock
    tool: Tool | None = None
    arguments: Any = None
    refusal: ToolResult | None = None
    hook: ToolHookDecision | None = None

    @property
    def name(self) -> str:
        """Name of the tool; the name in the call if there is no such tool."""
        return self.tool.name if self.tool else self.call.name

    @property
    def checked_arguments(self) -> dict[str, Any]:
        """The checked arguments by name."""
        if isinstance(self.arguments, Struct):
            return structs.asdict(self.arguments)
        return self.call.arguments


def prepare_call(run: RunContext, call: ToolCallBlock) -> PreparedCall:
    """Look up the tool of a call and check its arguments; a fault becomes an error result."""
    if call.name not in run.tools and not call.malformed:
        try:
            meant = split_editor_call(call.name, call.arguments)
        except ValueError as error:
            return refuse_call(call, None, f"Invalid arguments for {call.name}: {error}")
        if meant:
            call = structs.replace(call, name=meant[0], arguments=meant[1])
    name = call.name if call.name in run.tools else normalize_tool_name(call.name)
    if name not in run.tools and name in STAND_INS:
        name, arguments = STAND_INS[name]
        call = structs.replace(call, arguments=arguments)
    # A tool of a server counts as the server lists it now.
    tool = run.tools.find(name) if name.startswith(SERVER_PREFIX) else run.tools.get(name)
    if tool is None:
        hint = _find_replacement(run, name) or suggest_names(call.name, run.tools)
        if name.startswith(SERVER_PREFIX) and FORWARDING_TOOL in run.tools:
            hint = f"Find it with mcp_find, and call it with {FORWARDING_TOOL}."
        return refuse_call(call, None, f"There is no tool {call.name!r} here. {hint}")
    if call.malformed:
        quoted = call.malformed[:MAX_QUOTED_ARGUMENTS]
        text = f"The arguments of {name} were not a JSON object: {quoted!r}."
        return refuse_call(call, tool, f"{text} Send the call again with valid JSON.")
    try:
        if tool.forward:
            name, arguments = tool.forward(call.arguments)
            return prepare_call(run, structs.replace(call, name=name, arguments=arguments))
        sent = add_implied_arguments(call.name, call.arguments)
        arguments = tool.read_arguments(sent, called=call.name)
        _read_path(run, call, tool.path_argument, arguments)
        return PreparedCall(structs.replace(call, arguments=arguments), tool, tool.parse(arguments))
    except (ValueError, TypeError) as error:
        from ..._core.schemas.mismatch import explain_mismatch  # only a mistake needs it

        reason = explain_mismatch(error, tool.parameters)
        return refuse_call(call, tool, f"Invalid arguments for {name}: {reason}")


def _find_replacement(run: RunContext, name: str) -> str:
    """Say how the run can do what a tool of another program does; "" if it cannot, or unknown."""
    text, needed = REPLACEMENTS.get(name.lower(), ("", ()))
    if any(tool not in run.tools for tool in needed):
        return ""
    arguments = (
        f"{tool} takes {', '.join(run.tools[tool].parameters['properties'])}." for tool in needed
    )
    return " ".join((text, *arguments))


def _read_path(run: RunContext, call: ToolCallBlock, name: str, arguments: dict[str, Any]) -> None:
    """Expand or refuse a path in the arguments, before rules judge the call and anyone sees it.

    Raises ValueError.
    """
    path = arguments.get(name)
    if not isinstance(path, str):
        return
    try:
        arguments[name] = run.read_path(call.id, name, path)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def refuse_call(call: ToolCallBlock, tool: Tool | None, text: str) -> PreparedCall:
    """Return a call that does not run. `text`: says why."""
    return PreparedCall(call, tool, refusal=ToolResult(text, error=True))
