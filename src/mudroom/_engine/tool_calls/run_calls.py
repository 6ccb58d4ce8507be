"""Tool calls of one answer: intent, action and result, each stored before the next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from ..._core.events import PermissionDecided, ToolCallFinished, ToolCallStarted
from ..._core.json_values import find_json_fault
from ..._core.messages import ToolCallBlock, clean_call
from ..._core.ports import ApprovalDecision, ApprovalRequest, Hooks, PermissionVerdict
from ..._core.ports.hooks import ToolHookDecision, check_hook_result
from ..._core.tools import Effect, ToolCategory, ToolResult, clean_result, join_reasons
from ..._projections.engine_text import quote_appended, quote_hook
from ..._projections.safe_text import make_call_title
from ...errors import UsageError
from ..call_batch import CallOutcome
from ..call_context import CallContext
from ..evidence import keep_evidence
from ..resume import collect_reminders, resolve_interrupted
from ..run_context import RunContext
from .execution import (
    MAX_QUOTED_ARGUMENTS,
    PreparedCall,
    act_and_observe,
    cap_result,
    prepare_call,
    redact_result,
    refuse_call,
    warn_of_overlaps,
)

QUICK_SECONDS = 1.0
"""Duration up to which a pure call is quick: its result is stored with the next record.

Slower results are stored at once. After a crash a quick call may run again (S3).
"""

STARTS_AT_ONCE = 32
"""Calls of one answer that start in one iteration of the event loop.

The first of thousands of children work while the others start, and timers come in between.
"""

ALL_FAILED = (
    "All tool calls of this turn failed. Read the errors, find the cause, and try another way."
)


async def run_tool_calls(run: RunContext) -> list[CallOutcome]:
    """Run the calls of the batch that have no outcome yet, and queue all results for the model.

    Returns the outcomes in the order of the calls.
    """
    if not run.batch.calls:
        return []
    open_calls = run.batch.list_open_calls()
    if len(open_calls) == 1:
        [(position, call)] = open_calls
        await _run_call(run, position, prepare_call(run, call))
    elif open_calls:
        scheduler = CallScheduler()
        await _run_all(_start_call(run, scheduler, *each) for each in open_calls)
    outcomes = run.close_batch()
    for note in collect_reminders(run):
        run.add_note(note)
    failed = [outcome for outcome in outcomes if outcome.result.error]
    if len(failed) == len(outcomes):
        run.add_note(ALL_FAILED)
    return outcomes


def _start_call(
    run: RunContext, scheduler: CallScheduler, position: int, call: ToolCallBlock
) -> Coroutine[Any, Any, None]:
    """Return the work of a call, with its place in the order of the calls."""
    prepared = prepare_call(run, call)
    lane = choose_lane(prepared)
    if lane is None:
        return _run_call(run, position, prepared)
    return _run_in_order(run, position, prepared, scheduler.reserve(lane))


async def _run_all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run calls at the same time; `calls` makes each of them when it starts."""
    try:
        async with asyncio.TaskGroup() as group:
            for count, call in enumerate(calls, 1):
                group.create_task(call)
                if count % STARTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
    except BaseExceptionGroup as failures:
        # Only a failed journal or a fault of the engine arrives here: it ends the session.
        raise failures.exceptions[0] from None


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
        prepared = await call_before_hook(run, run.services.hooks, prepared)
    prepared = await check_permission(run, prepared)
    refusal = prepared.refusal
    context = CallContext(run, prepared.call, position)
    started_at = run.services.clock.monotonic()
    result = refusal
    if prepared.call.id not in run.batch.started:
        await _record_start(run, prepared, is_refused=refusal is not None)
    elif prepared.tool and not refusal:
        result = resolve_interrupted(run, prepared.call, prepared.tool)
    if result is None:
        run.batch.working[prepared.call.id] = prepared.name, started_at
        result = await act_and_observe(context, prepared)
        if run.services.recorded_work is None:  # recorded results have the engine's lines already
            result = replace(result, text=quote_appended(result.text))
        result = warn_of_overlaps(run, prepared, result)
        if run.services.hooks:
            changed = await run.services.hooks.after_tool(run.brief, prepared.call, result)
            check_hook_result("after_tool", changed, ToolResult)
            result = keep_evidence(changed, result) if changed else result
            result = await _add_changes_of_hooks(run, run.services.hooks, result)
        result = cap_result(context, redact_result(run, result))
    seconds = round(run.services.clock.monotonic() - started_at, 3)
    if prepared.hook and prepared.hook.context:
        result = add_context(run, prepared.hook, result)
    if result.context:
        result = replace(result, context=quote_hook(result.context))
    result = clean_result(result)
    outcome = CallOutcome(prepared.call.id, prepared.name, result, refusal is not None)
    await _record_outcome(run, prepared, outcome, seconds)


async def _add_changes_of_hooks(run: RunContext, hooks: Hooks, result: ToolResult) -> ToolResult:
    """Return the result with the reason why hooks of the call may have changed files."""
    if run.services.recorded_work is not None:
        return result  # a recorded result has it already
    if not (why := await hooks.explain_changes(run.brief)):
        return result
    return replace(result, unknown_changes=join_reasons(result.unknown_changes, why))


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


ALL_LANES = "*"
"""Lane of a call that may change anything: it runs alone, except for `is_parallel` tools."""
READING = "reading"
"""Lane of calls that change nothing: they run beside one another."""
_PARALLEL = "parallel "
"""Start of the lanes of effectful tools with `is_parallel`; each call has its own."""


def choose_lane(prepared: PreparedCall) -> str | None:
    """Return the lane of a call: calls of one lane run one after another, except in `READING`.

    None means that the call neither waits for others nor holds them up.
    """
    tool = prepared.tool
    if tool is None or prepared.refusal:
        return None
    if tool.effect is Effect.PURE:
        # `wait` may wait for the effect of a call after it, such as an answer to a message.
        return None if tool.category is ToolCategory.AGENT else READING
    if tool.effect is Effect.EFFECTFUL:
        return f"{_PARALLEL}{prepared.call.id}" if tool.is_parallel else ALL_LANES
    return tool.get_key(prepared.arguments)


class Slot(Struct):
    """Place of a call in the schedule: the events to wait for, and the event to set at its end."""

    before: Sequence[asyncio.Event]
    done: asyncio.Event


class CallScheduler:
    """Order of the calls of one answer.

    The model reads the results as if its calls ran one after another, so a call that changes
    something waits for earlier ones that read, and a call that reads waits for earlier ones that
    change something. Without that, a file that is written and read in one answer "does not exist"
    (as reported of several agents that run all reading calls first).

    Calls that read run beside one another, and so do keyed calls with different keys. Effectful
    calls of tools with `is_parallel` wait only for earlier ones that may change anything.
    """

    def __init__(self) -> None:
        self._changing: dict[str, asyncio.Event] = {}
        self._reading: list[asyncio.Event] = []

    def reserve(self, lane: str) -> Slot:
        """Return the slot of the next call with a lane; see `choose_lane`."""
        slot = Slot(self._list_before(lane), asyncio.Event())
        if lane == READING:
            self._reading.append(slot.done)
            return slot
        if lane == ALL_LANES:  # all that came before is over when this call begins
            self._changing = {}
            self._reading = []
        self._changing[lane] = slot.done
        return slot

    def _list_before(self, lane: str) -> list[asyncio.Event]:
        changing = self._changing
        if lane == READING:
            return [done for other, done in changing.items() if not other.startswith(_PARALLEL)]
        if lane == ALL_LANES:
            return [*changing.values(), *self._reading]
        before = [changing[other] for other in (lane, ALL_LANES) if other in changing]
        return before if lane.startswith(_PARALLEL) else [*before, *self._reading]


async def call_before_hook(run: RunContext, hooks: Hooks, prepared: PreparedCall) -> PreparedCall:
    """Return the call as a hook changed or refused it. Store a refusal."""
    decision = await hooks.before_tool(run.brief, prepared.call)
    check_hook_result("before_tool", decision, ToolHookDecision)
    if decision is None:
        return prepared
    if decision.denial:
        return await _refuse(run, prepared, decision)
    return _change_arguments(run, prepared, decision)


async def _refuse(
    run: RunContext, prepared: PreparedCall, decision: ToolHookDecision
) -> PreparedCall:
    """Return a call that a hook refuses, and store the refusal."""
    verdict = PermissionVerdict("deny", decision.denial, rule=decision.rule)
    await _record_decision(run, prepared, verdict, ApprovalDecision(False))
    text = _explain_denial(prepared.name, verdict, ApprovalDecision(False))
    return structs.replace(refuse_call(prepared.call, prepared.tool, text), hook=decision)


def _change_arguments(
    run: RunContext, prepared: PreparedCall, decision: ToolHookDecision
) -> PreparedCall:
    """Return the call with the arguments and the decision of a hook."""
    if decision.arguments is None:
        return structs.replace(prepared, hook=decision)
    if fault := find_json_fault(decision.arguments):
        text = f"a hook gave arguments that cannot be recorded: {fault}"
        raise UsageError(text, where=prepared.name)
    call = structs.replace(prepared.call, arguments=decision.arguments)
    return structs.replace(prepare_call(run, clean_call(call)), hook=decision)


def add_context(run: RunContext, decision: ToolHookDecision, result: ToolResult) -> ToolResult:
    """Return the result with the text that a hook gave before the call."""
    texts = filter(None, (run.services.redact(decision.context), result.context))
    return structs.replace(result, context="\n".join(texts))


async def check_permission(run: RunContext, prepared: PreparedCall) -> PreparedCall:
    """Return the call, refused if a rule, the mode, a hook or the approver denies it; store that.

    A hook may change the arguments in place of the approver; rules then judge them again.
    """
    if prepared.tool is None or prepared.refusal:
        return prepared
    verdict = _judge(run, prepared)
    if verdict.verdict == "allow":
        return prepared
    decision = ApprovalDecision(False)
    if verdict.verdict == "ask":
        if prepared.hook and prepared.hook.verdict == "allow" and not verdict.rule:
            decision = ApprovalDecision(True, prepared.hook.why)
            verdict = structs.replace(verdict, rule=prepared.hook.rule)
        else:
            prepared, verdict, decision = await _ask(run, prepared, verdict)
    if prepared.refusal:
        return prepared
    await _record_decision(run, prepared, verdict, decision)
    if decision.allowed:
        return prepared
    if run.services.hooks:
        why = decision.why or verdict.why
        await run.services.hooks.on_permission_denied(run.brief, prepared.call, why)
    text = _explain_denial(prepared.name, verdict, decision)
    return structs.replace(prepared, refusal=ToolResult(text, error=True))


def _judge(run: RunContext, prepared: PreparedCall) -> PermissionVerdict:
    """Return the verdict of the policy; a hook may require that someone confirms the call."""
    assert prepared.tool is not None
    verdict = run.environment.policy.judge(
        prepared.call, prepared.tool, prepared.checked_arguments, run.brief
    )
    hook = prepared.hook
    if hook and hook.verdict == "ask" and verdict.verdict == "allow":
        return PermissionVerdict("ask", hook.why, rule=hook.rule)
    return verdict


async def _ask(
    run: RunContext, prepared: PreparedCall, verdict: PermissionVerdict
) -> tuple[PreparedCall, PermissionVerdict, ApprovalDecision]:
    """Ask the hooks, then the approver. Return the call, the verdict and the decision."""
    answer = None
    if hooks := run.services.hooks:
        answer = await hooks.on_permission_request(run.brief, prepared.call, verdict.why)
        check_hook_result("on_permission_request", answer, ToolHookDecision)
    if answer is None or not (answer.denial or answer.verdict == "allow"):
        decision = await _ask_approver(run, prepared, verdict)
        if decision.arguments is None or not decision.allowed:
            return prepared, verdict, decision
        answer = ToolHookDecision(
            verdict="allow", arguments=decision.arguments, why=decision.why, rule=verdict.rule
        )
    if answer.denial:
        verdict = structs.replace(verdict, rule=answer.rule)
        return prepared, verdict, ApprovalDecision(False, answer.denial)
    prepared = _change_arguments(run, prepared, answer)
    if prepared.refusal is None and answer.arguments is not None:
        verdict = _judge(run, prepared)
        if verdict.verdict == "deny":
            return prepared, verdict, ApprovalDecision(False)
    verdict = structs.replace(verdict, verdict="ask", rule=answer.rule)
    return prepared, verdict, ApprovalDecision(True, answer.why)


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
        reasons.append(f"in: {verdict.command_part[:MAX_QUOTED_ARGUMENTS]}")
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
    workspace = run.environment.workspace
    change = await run.services.in_thread(tool.list_proposed, workspace, arguments)
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
        run.brief.name,
    )
    with run.meter.pause():
        return await run.services.approver.decide(request)
