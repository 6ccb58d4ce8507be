"""Decisions on merges and checks: the policy, the user, the record."""

from __future__ import annotations

import asyncio

from ..._core.counts import count_noun
from ..._core.events import PermissionDecided
from ..._core.messages import ToolCallBlock
from ..._core.ports import (
    MERGE,
    ApprovalDecision,
    ApprovalRequest,
    Isolation,
    MergePlan,
    PermissionVerdict,
)
from ..._core.tools import PreviewLine, ToolCategory
from ..call_context import CallContext
from ..changes.merge_preview import preview_merge
from ..run_context import RunContext

_VERDICTS = ("deny", "ask", "allow")


async def decide(
    run: RunContext, name: str, verdict: PermissionVerdict, request: ApprovalRequest
) -> str:
    """Return why an act is not allowed, "" if it is; ask the user if the verdict says so.

    Arguments:
        name: of the act in the record.
    """
    decision = ApprovalDecision(False)
    if verdict.verdict == "ask":
        with run.meter.pause():
            decision = await run.services.approver.decide(request)
    event = run.recorder.make_event(
        PermissionDecided,
        call_id=request.call_id,
        name=name,
        verdict=verdict.verdict,
        allowed=decision.allowed,
        policy_reason=verdict.why,
        approver_reason=decision.why,
        rule=verdict.rule,
    )
    await run.recorder.record(event)
    if decision.allowed:
        return ""
    return decision.why or verdict.why or "the user said no"


async def find_merge_denial(context: CallContext, run_id: str, plan: MergePlan) -> str:
    """Return why the rules or the mode deny the merge of a run's work, "" if they do not."""
    if "write" not in context.run.services.toolbox:
        return "no file may be written in this session"
    verdict = _judge(context, plan)
    if verdict.verdict != "deny":
        return ""
    return await decide(context.run, MERGE, verdict, _make_request(context, run_id, plan))


async def ask_for_merge(
    context: CallContext, run_ids: str, plan: MergePlan, isolation: Isolation
) -> str:
    """Ask the user once for all files, if the rules say so. Return why not, "" if allowed."""
    verdict = _judge(context, plan)
    if verdict.verdict == "allow":
        return ""
    change = await asyncio.to_thread(preview_merge, plan, isolation)
    return await decide(context.run, MERGE, verdict, _make_request(context, run_ids, plan, change))


def _judge(context: CallContext, plan: MergePlan) -> PermissionVerdict:
    """Return the strictest verdict on the files of a plan."""
    run = context.run
    tool = run.services.toolbox["write"]
    call = ToolCallBlock(context.call.id if context.call else "", MERGE, {})
    verdicts = [
        run.environment.policy.judge(call, tool, {"path": file.path, "content": ""}, run.brief)
        for file in plan.files
    ]
    allowed = PermissionVerdict("allow")
    return min(verdicts, key=lambda each: _VERDICTS.index(each.verdict), default=allowed)


def _make_request(
    context: CallContext, run_ids: str, plan: MergePlan, change: tuple[PreviewLine, ...] = ()
) -> ApprovalRequest:
    brief = context.run.brief
    paths = [file.path for file in plan.files]
    return ApprovalRequest(
        brief.run_id,
        brief.agent.name,
        MERGE,
        {"run": run_ids, "files": paths},
        f"{count_noun(len(paths), 'file')} of yours would change",
        context.call.id if context.call else "",
        category=ToolCategory.WRITE,
        name=brief.name,
        change=change,
    )
