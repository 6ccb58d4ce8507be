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
