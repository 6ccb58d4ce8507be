"""Tool calls of one answer: look up, check, approve, run; in parallel where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct, structs

from .._core.events import PermissionDecided, ToolCallFinished, ToolCallStarted
from .._core.json_values import find_json_fault
from .._core.messages import ToolCallBlock, clean_call
from .._core.ports import ApprovalDecision, ApprovalRequest, Hooks, PermissionVerdict
from .._core.ports.hooks import ToolHookDecision, check_hook_result
from .._core.tool_names import add_implied_arguments, normalize_tool_name
from .._core.tools import Effect, Tool, ToolResult, clean_result
from ..errors import MudroomError, UsageError, suggest_names
from ..projections.safe_text import make_call_title
from .call_batch import CallOutcome
from .call_context import CallContext
from .changes.watch import ChangeWindow, WriteWindow, add_writes
from .evidence import keep_evidence
from .resume import collect_reminders, resolve_interrupted
from .run_context import RunContext

OUTPUT_CAP = 50_000
"""Maximum characters of one result for the model; the whole text is in a spill file."""

_SPILL_NOTICE_CHARACTERS = 400
"""Characters of OUTPUT_CAP reserved for the notice between head and tail."""

QUICK_SECONDS = 1.0
"""Duration up to which a pure call is quick: its result is stored with the next record.

Slower results are stored at once. After a crash a quick call may run again (S3).
"""

ALL_LANES = "*"
"""Lane of a call that may change anything: it runs alone among calls with an effect."""

ALL_FAILED = (
    "All tool calls of this turn failed. Read the errors, find the cause, and try another way."
)

_MAX_QUOTED_ARGUMENTS = 200
"""Characters of malformed arguments or of a command that an error message quotes."""


class PreparedCall(Struct, frozen=True):
    """A tool call after lookup and check: it can run, or `refusal` says why not."""

    call: ToolCallBlock
    tool: Tool | None = None
    arguments: Any = None
    refusal: ToolResult | None = None

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


async def run_tool_calls(run: RunContext, calls: Sequence[ToolCallBlock]) -> list[CallOutcome]:
    """Run the calls of an answer that have no outcome yet, and queue all results for the model.

    Returns the outcomes in the order of the calls.
    """
    if not calls:
        return []
    scheduler = CallScheduler()
    tasks: list[Coroutine[Any, Any, None]] = []
    for position, call in run.batch.list_open_calls():
        prepared = prepare_call(run, call)
        lane = _choose_lane(prepared)
        if lane is None:
            tasks.append(_run_call(run, position, prepared))
        else:
            tasks.append(_run_in_order(run, position, prepared, scheduler.reserve(lane)))
    if len(tasks) == 1:
        await tasks[0]
    elif tasks:
        await _run_all(tasks)
    outcomes = run.close_batch()
    for note in collect_reminders(run):
        run.add_note(note)
    if all(outcome.result.error for outcome in outcomes):
        run.add_note(ALL_FAILED)
    return outcomes


async def _run_all(tasks: Sequence[Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except BaseExceptionGroup as failures:
        # Only a failed journal or a fault of the engine arrives here: it ends the session.
        raise failures.exceptions[0] from None


def prepare_call(run: RunContext, call: ToolCallBlock) -> PreparedCall:
    """Look up the tool of a call and check its arguments; a fault becomes an error result."""
    name = call.name if call.name in run.tools else normalize_tool_name(call.name)
    tool = run.tools.get(name)
    if tool is None:
        hint = suggest_names(call.name, run.tools)
        return _refuse(call, None, f"There is no tool {call.name!r} here. {hint}")
    if call.malformed:
        quoted = call.malformed[:_MAX_QUOTED_ARGUMENTS]
        text = f"The arguments of {name} were not a JSON object: {quoted!r}."
        return _refuse(call, tool, f"{text} Send the call again with valid JSON.")
    try:
        arguments = tool.rename_arguments(add_implied_arguments(call.name, call.arguments))
        return PreparedCall(structs.replace(call, arguments=arguments), tool, tool.parse(arguments))
    except (ValueError, TypeError) as error:
        return _refuse(call, tool, f"Invalid arguments for {name}: {error}")


def _refuse(call: ToolCallBlock, tool: Tool | None, text: str) -> PreparedCall:
    return PreparedCall(call, tool, refusal=ToolResult(text, error=True))


def _choose_lane(prepared: PreparedCall) -> str | None:
    """Return the lane of a call: calls of one lane run one after another.

    None means that the call may run in parallel with all others.
    """
    tool = prepared.tool
    if tool is None or prepared.refusal or tool.effect is Effect.PURE:
        return None
    return ALL_LANES if tool.effect is Effect.EFFECTFUL else tool.get_key(prepared.arguments)


class Slot(Struct):
    """Place of a call in the schedule: the events to wait for, and the event to set at its end."""

    before: Sequence[asyncio.Event]
    done: asyncio.Event


class CallScheduler:
    """Order of the calls of one answer.

    Pure calls and calls without a key never wait. Calls with the same key run one after another.
    An effectful call waits for all earlier calls with an effect, and all later ones wait for it.
    """

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Event] = {}

    def reserve(self, lane: str) -> Slot:
        """Return the slot of the next call with a lane; see `_choose_lane`."""
        done = asyncio.Event()
        if lane == ALL_LANES:
            before = list(self._last.values())
            self._last = {}
        else:
            before = [self._last[other] for other in (lane, ALL_LANES) if other in self._last]
        self._last[lane] = done
        return Slot(before, done)


async def _run_in_order(run: RunContext, position: int, prepared: PreparedCall, slot: Slot) -> None:
    try:
        for event in slot.before:
            await event.wait()
        await _run_call(run, position, prepared)
    finally:
        slot.done.set()


async def _run_call(run: RunContext, position: int, prepared: PreparedCall) -> None:
    """Run one call: intent, act, result, each stored before the next (S1)."""
    if run.services.hooks and not prepared.refusal and prepared.call.id not in run.batch.started:
        prepared = await _call_before_hook(run, run.services.hooks, prepared)
    refusal = prepared.refusal or await _check_permission(run, prepared)
    context = CallContext(run, prepared.call, position)
    started_at = run.services.clock.monotonic()
    result = refusal
    if prepared.call.id not in run.batch.started:
        await _record_start(run, prepared, is_refused=refusal is not None)
    elif prepared.tool and not refusal:
        result = resolve_interrupted(run, prepared.call, prepared.tool)
    if result is None:
        result = await _act_and_observe(context, prepared)
        if run.services.hooks:
            changed = await run.services.hooks.after_tool(run.brief, prepared.call, result)
            check_hook_result("after_tool", changed, ToolResult)
            result = keep_evidence(changed, result) if changed else result
        result = cap_result(context, redact_result(run, result))
    seconds = round(run.services.clock.monotonic() - started_at, 3)
    result = clean_result(result)
    outcome = CallOutcome(prepared.call.id, prepared.name, result, refusal is not None)
    await _record_outcome(run, prepared, outcome, seconds)


async def _record_start(run: RunContext, prepared: PreparedCall, *, is_refused: bool) -> None:
    """Store the start of a call; that of a refused call is stored together with its outcome."""
    tool = prepared.tool
    started = run.recorder.make_event(
        ToolCallStarted,
        call=prepared.call,
        title=make_call_title(prepared.call.arguments, tool),
        view=tool.view if tool else "",
    )
    if is_refused:
        run.recorder.record_later(started, show=True)
    else:
        await run.recorder.record(started)


async def _record_outcome(
    run: RunContext, prepared: PreparedCall, outcome: CallOutcome, seconds: float
) -> None:
    run.batch.add(outcome)
    finished = run.recorder.make_event(
        ToolCallFinished,
        call_id=outcome.call_id,
        name=outcome.name,
        result=outcome.result,
        seconds=seconds,
        refused=outcome.refused,
    )
    is_pure = prepared.tool is not None and prepared.tool.effect is Effect.PURE
    if is_pure and seconds <= QUICK_SECONDS:
        run.recorder.record_later(finished, show=True)
    else:
        await run.recorder.record(finished)


async def _call_before_hook(run: RunContext, hooks: Hooks, prepared: PreparedCall) -> PreparedCall:
    """Return the call as a hook changed or refused it. Store a refusal."""
    decision = await hooks.before_tool(run.brief, prepared.call)
    check_hook_result("before_tool", decision, ToolHookDecision)
    if decision is None:
        return prepared
    if decision.denial:
        verdict = PermissionVerdict("deny", decision.denial, rule="hook")
        await _record_decision(run, prepared, verdict, ApprovalDecision(False))
        text = _explain_denial(prepared.name, verdict, ApprovalDecision(False))
        return _refuse(prepared.call, prepared.tool, text)
    if decision.arguments is None:
        return prepared
    if fault := find_json_fault(decision.arguments):
        text = f"a hook gave arguments that cannot be recorded: {fault}"
        raise UsageError(text, where=prepared.name)
    call = structs.replace(prepared.call, arguments=decision.arguments)
    return prepare_call(run, clean_call(call))


async def _check_permission(run: RunContext, prepared: PreparedCall) -> ToolResult | None:
    """Return an error result if a rule, the mode or the approver denies the call; store it."""
    if prepared.tool is None:
        return None
    verdict = run.environment.policy.judge(
        prepared.call, prepared.tool, prepared.checked_arguments, run.brief
    )
    if verdict.verdict == "allow":
        return None
    decision = ApprovalDecision(False)
    if verdict.verdict == "ask":
        decision = await _ask_approver(run, prepared, verdict)
    await _record_decision(run, prepared, verdict, decision)
    if decision.allowed:
        return None
    return ToolResult(_explain_denial(prepared.name, verdict, decision), error=True)


async def _record_decision(
    run: RunContext,
    prepared: PreparedCall,
    verdict: PermissionVerdict,
    decision: ApprovalDecision,
) -> None:
    event = run.recorder.make_event(
        PermissionDecided,
        call_id=prepared.call.id,
        name=prepared.name,
        verdict=verdict.verdict,
        allowed=decision.allowed,
        policy_reason=verdict.why,
        approver_reason=decision.why,
        rule=verdict.rule,
        command_part=verdict.command_part,
    )
    await run.recorder.record(event)


def _explain_denial(name: str, verdict: PermissionVerdict, decision: ApprovalDecision) -> str:
    reasons = [verdict.why, verdict.rule]
    if verdict.verdict == "ask":
        reasons.insert(0, decision.why or "the user said no")
    if verdict.command_part:
        reasons.append(f"in: {verdict.command_part[:_MAX_QUOTED_ARGUMENTS]}")
    why = "; ".join(filter(None, reasons))
    return f"{name} was not allowed: {why}. Find another way, or do without."


async def _ask_approver(
    run: RunContext, prepared: PreparedCall, verdict: PermissionVerdict
) -> ApprovalDecision:
    """Ask the approver, with the clocks of the run and its ancestors stopped."""
    assert prepared.tool is not None
    tool = prepared.tool
    arguments = prepared.checked_arguments
    await run.recorder.record()  # An answer may take hours; the user reads the text before it.
    change = await asyncio.to_thread(tool.list_proposed, run.environment.workspace, arguments)
    request = ApprovalRequest(
        run.brief.run_id,
        run.brief.agent.name,
        prepared.name,
        arguments,
        verdict.why,
        prepared.call.id,
        verdict.command_part,
        tool.category,
        change,
    )
    with run.meter.pause():
        return await run.services.approver.decide(request)


async def _act_and_observe(context: CallContext, prepared: PreparedCall) -> ToolResult:
    """Run the tool; return its result with the files that it changed."""
    watch = context.run.services.change_watch
    tool = prepared.tool
    call_id = prepared.call.id
    if tool is None or tool.effect is Effect.PURE:
        return add_writes(await _act(context, prepared), context.writes)
    # If the call is cut off, the end of the run closes its window.
    windows = context.run.evidence.open_windows
    if watch and tool.effect is Effect.EFFECTFUL:
        workspace = context.run.environment.workspace
        windows[call_id] = window = ChangeWindow(watch, workspace, context.writes)
        await window.start()
    else:
        windows[call_id] = WriteWindow(context.writes)
    result = await _act(context, prepared)
    result = await windows[call_id].close(result)  # the task tool puts in a window of its own
    del windows[call_id]
    return result


async def _act(context: CallContext, prepared: PreparedCall) -> ToolResult:
    """Run the tool. An exception becomes an error result, except a cancel of the run."""
    assert prepared.tool is not None
    name = prepared.tool.name
    try:
        result = await prepared.tool.run(context, prepared.arguments)
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


def redact_result(run: RunContext, result: ToolResult) -> ToolResult:
    """Return the result without secrets."""
    text = run.services.redact(result.text)
    display = run.services.redact(result.display)
    if text == result.text and display == result.display:
        return result
    return structs.replace(result, text=text, display=display)


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
