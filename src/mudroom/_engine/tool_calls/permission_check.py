"""Permission of one tool call: rules, mode, hook and approver decide; decisions are stored."""

from __future__ import annotations

import asyncio

from msgspec import structs

from ..._core.events import PermissionDecided
from ..._core.json_values import find_json_fault
from ..._core.messages import clean_call
from ..._core.ports import ApprovalDecision, ApprovalRequest, Hooks, PermissionVerdict
from ..._core.ports.hooks import ToolHookDecision, check_hook_result
from ..._core.tools import ToolResult
from ...errors import UsageError
from ..run_context import RunContext
from .prepared_call import MAX_QUOTED_ARGUMENTS, PreparedCall, prepare_call, refuse_call


async def call_before_hook(run: RunContext, hooks: Hooks, prepared: PreparedCall) -> PreparedCall:
    """Return the call as a hook changed or refused it. Store a refusal."""
    decision = await hooks.before_tool(run.brief, prepared.call)
    check_hook_result("before_tool", decision, ToolHookDecision)
    if decision is None:
        return prepared
    if decision.denial:
        verdict = PermissionVerdict("deny", decision.denial, rule="hook")
        await _record_decision(run, prepared, verdict, ApprovalDecision(False))
        text = _explain_denial(prepared.name, verdict, ApprovalDecision(False))
        return refuse_call(prepared.call, prepared.tool, text)
    if decision.arguments is None:
        return prepared
    if fault := find_json_fault(decision.arguments):
        text = f"a hook gave arguments that cannot be recorded: {fault}"
        raise UsageError(text, where=prepared.name)
    call = structs.replace(prepared.call, arguments=decision.arguments)
    return prepare_call(run, clean_call(call))


async def check_permission(run: RunContext, prepared: PreparedCall) -> ToolResult | None:
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
        run.brief.name,
    )
    with run.meter.pause():
        return await run.services.approver.decide(request)
