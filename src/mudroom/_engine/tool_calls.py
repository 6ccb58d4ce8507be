"""The calls of one answer: known? valid? approved? then intent, act, result; side by side where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct, structs

from .._core.events import PermissionDecided, ToolCallFinished, ToolCallStarted
from .._core.messages import ToolCallBlock, ToolResultBlock
from .._core.ports import ApprovalDecision, ApprovalRequest, PermissionVerdict
from .._core.tools import Effect, Tool, ToolResult, canonical_tool_name
from ..errors import MudroomError, suggest_names
from .resume import resolve_interrupted
from .run_context import CallContext, RunContext

OUTPUT_CAP = 50_000
"""Characters of one result in a context; the whole stays on disk."""

QUICK_SECONDS = 1.0
"""Seconds up to which a pure call is no work worth keeping by itself: its result is stored with the next record, and a crash
before that runs it again (S3). What took longer is stored at once."""

ALL_LANES = "*"
"""The lane of a call that may touch anything."""

ALL_FAILED = (
    "All tool calls of this turn failed. Read the errors, find the cause, and try another way."
)


class PreparedCall(Struct, frozen=True):
    """A call that was looked up and checked: either it can act, or `refusal` says why not."""

    call: ToolCallBlock
    tool: Tool | None = None
    arguments: Any = None
    refusal: ToolResult | None = None

    @property
    def checked_arguments(self) -> dict[str, Any]:
        """The arguments as they were checked, by name."""
        return (
            structs.asdict(self.arguments)
            if isinstance(self.arguments, Struct)
            else self.call.arguments
        )


async def run_tool_calls(ctx: RunContext) -> None:
    """Run the calls the model asked for that have no result yet; results go into the inbox in the order of the calls."""
    ready = {
        place: prepare_call(ctx, call)
        for place, call in enumerate(ctx.open_calls, 1)
        if call.id not in ctx.results
    }
    lanes = CallScheduler()
    ordered = [
        _in_order(ctx, place, call, *lanes.reserve(_lane(call))) for place, call in ready.items()
    ]
    if len(ordered) == 1:
        await ordered[0]
    elif ordered:
        await _together(ordered)
    all_failed = all(result.error for result in ctx.results.values())
    ctx.queue_results()
    for word in _words(ctx, all_failed):
        ctx.inject_note(word)


async def _together(calls: Sequence[Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(call)
    except (
        BaseExceptionGroup
    ) as failures:  # only the journal, or a fault of ours, gets here: it ends the session
        raise failures.exceptions[0] from None


def prepare_call(ctx: RunContext, call: ToolCallBlock) -> PreparedCall:
    """Look a call up and check its arguments; what is wrong becomes a result the model can act on."""
    name = canonical_tool_name(call.name) if call.name not in ctx.tools else call.name
    tool = ctx.tools.get(name)
    if tool is None:
        return PreparedCall(
            call,
            refusal=_refused(
                f"There is no tool {call.name!r} here. {suggest_names(call.name, ctx.tools)}"
            ),
        )
    if call.malformed:
        text = f"The arguments of {name} were not a JSON object: {call.malformed[:200]!r}. Send the call again with valid JSON."
        return PreparedCall(call, tool, refusal=_refused(text))
    given = {tool.argument_aliases.get(key, key): value for key, value in call.arguments.items()}
    try:
        return PreparedCall(call, tool, tool.parse(given))
    except (ValueError, TypeError) as error:
        return PreparedCall(call, tool, refusal=_refused(f"Invalid arguments for {name}: {error}"))


def _refused(text: str) -> ToolResult:
    return ToolResult(text, error=True)


def _lane(ready: PreparedCall) -> str | None:
    if ready.tool is None or ready.refusal or ready.tool.effect is Effect.PURE:
        return None
    return ALL_LANES if ready.tool.effect is Effect.EFFECTFUL else ready.tool.key(ready.arguments)


class CallScheduler:
    """Who waits for whom: pure calls and tasks for nobody, the writers of a file in a row, an effectful call is alone among effects."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Event] = {}

    def reserve(self, lane: str | None) -> tuple[Sequence[asyncio.Event], asyncio.Event | None]:
        """The events to wait for, and the one to set at the end."""
        if lane is None:
            return (), None
        ended = asyncio.Event()
        if lane == ALL_LANES:
            before = list(self._last.values())
            self._last = {}
        else:
            before = [self._last[other] for other in (lane, ALL_LANES) if other in self._last]
        self._last[lane] = ended
        return before, ended


async def _in_order(
    ctx: RunContext,
    place: int,
    ready: PreparedCall,
    before: Sequence[asyncio.Event],
    ended: asyncio.Event | None,
) -> None:
    try:
        for event in before:
            await event.wait()
        await _one(ctx, place, ready)
    finally:
        if ended:
            ended.set()


async def _one(ctx: RunContext, place: int, ready: PreparedCall) -> None:
    refusal = ready.refusal or await _denied(ctx, ready)
    context, began = CallContext(ctx, ready.call, place), ctx.services.clock.monotonic()
    known = None
    if ready.call.id not in ctx.started_calls:
        await ctx.record(ctx.event(ToolCallStarted, call=ready.call))
    elif ready.tool and not refusal:
        known = resolve_interrupted(ctx, ready.call, ready.tool)
    result = (
        refusal or known or cap_result(context, redact_result(ctx, await _acted(context, ready)))
    )
    name = ready.tool.name if ready.tool else ready.call.name
    ctx.keep_outcome(ready.call.id, name, result, refused=refusal is not None)
    seconds = round(ctx.services.clock.monotonic() - began, 3)
    ctx.results[ready.call.id] = ToolResultBlock(ready.call.id, name, result.text, result.error)
    finished = ctx.event(
        ToolCallFinished,
        call_id=ready.call.id,
        name=name,
        result=result,
        seconds=seconds,
        refused=refusal is not None,
    )
    if ready.tool and ready.tool.effect is Effect.PURE and seconds <= QUICK_SECONDS:
        ctx.record_later(finished, show=True)
    else:
        await ctx.record(finished)


async def _denied(ctx: RunContext, ready: PreparedCall) -> ToolResult | None:
    """Why a call may not act: a rule, the run's mode or a person says so. What was not simply allowed is recorded."""
    if ready.tool is None:
        return None
    name, decision = (
        ready.tool.name,
        ctx.services.policy.judge(ready.call, ready.tool, ready.checked_arguments, ctx.brief),
    )
    if decision.verdict == "allow":
        return None
    answer = (
        await _answer(ctx, ready, decision)
        if decision.verdict == "ask"
        else ApprovalDecision(False)
    )
    judged = ctx.event(
        PermissionDecided,
        call_id=ready.call.id,
        name=name,
        verdict=decision.verdict,
        allowed=answer.allowed,
        why=decision.why,
        answer=answer.why,
        rule=decision.rule,
        part=decision.part,
    )
    await ctx.record(judged)
    if answer.allowed:
        return None
    said = (answer.why or "a person said no") if decision.verdict == "ask" else ""
    why = "; ".join(
        filter(
            None,
            (
                said,
                decision.why,
                decision.rule,
                decision.part[:200] and f"in: {decision.part[:200]}",
            ),
        )
    )
    return _refused(f"{name} was not allowed: {why}. Find another way, or do without.")


async def _answer(
    ctx: RunContext, ready: PreparedCall, decision: PermissionVerdict
) -> ApprovalDecision:
    assert ready.tool is not None
    brief, call = ctx.brief, ready.call
    question = ApprovalRequest(
        brief.run_id,
        brief.agent.name,
        ready.tool.name,
        ready.checked_arguments,
        decision.why,
        call.id,
        decision.part,
    )
    with ctx.meter.pause():
        return await ctx.services.approver.decide(question)


async def _acted(context: CallContext, ready: PreparedCall) -> ToolResult:
    assert ready.tool is not None
    try:
        return await ready.tool.run(context, ready.arguments)
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        return ToolResult(
            f"{ready.tool.name} failed: {error or 'something it waited for was cancelled'}",
            error=True,
        )
    except MudroomError as error:
        return ToolResult(str(error), error=True)
    except Exception as error:  # noqa: BLE001  a tool may raise anything; the model is told, the run goes on
        return ToolResult(f"{ready.tool.name} failed: {type(error).__name__}: {error}", error=True)


def redact_result(ctx: RunContext, result: ToolResult) -> ToolResult:
    """The result without secrets, for the model and the record."""
    text, display = ctx.services.redact(result.text), ctx.services.redact(result.display)
    return (
        result
        if text == result.text and display == result.display
        else structs.replace(result, text=text, display=display)
    )


def cap_result(context: CallContext, result: ToolResult) -> ToolResult:
    """The result with at most OUTPUT_CAP characters for the model: head and tail here, the whole in a file it can read."""
    text = result.text
    if len(text) <= OUTPUT_CAP:
        return result
    path = result.spill or context.spill_path("output")
    if not result.spill:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    half = OUTPUT_CAP // 2 - 200
    middle = f"\n\n[… {len(text) - 2 * half:,} characters left out; the whole is in {path}: read it with offset and limit …]\n\n"
    return ToolResult(
        text[:half] + middle + text[-half:],
        result.error,
        result.display,
        result.detail,
        result.reads,
        result.changes,
        path,
    )


def _words(ctx: RunContext, all_failed: bool) -> list[str]:
    context = CallContext(ctx)
    words = [word for tool in ctx.tools.values() if tool.remind and (word := tool.remind(context))]
    return [*words, ALL_FAILED] if all_failed else words
