"""Decisions on merges and checks: the policy, the user, the record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from stat import S_ISLNK

from ..._core.events import PermissionDecided
from ..._core.listings import count_noun
from ..._core.messages import ToolCallBlock
from ..._core.ports import (
    MERGE,
    ApprovalDecision,
    ApprovalRequest,
    Isolation,
    MergedFile,
    MergePlan,
    PermissionVerdict,
)
from ..._core.tools import PreviewLine, ToolCategory
from ..._platform.binary_files import is_binary
from ..._projections.differences import diff_texts
from ..call_context import CallContext
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


MAX_LINES = 400
"""Lines of differences; further files are named without their differences."""

_MAX_BYTES = 1_000_000
"""Size up to which a content is compared."""


def preview_merge(plan: MergePlan, isolation: Isolation) -> tuple[PreviewLine, ...]:
    """Return each file of a merge with the difference to the present content.

    The function blocks: call it in a thread.
    """
    lines: list[PreviewLine] = []
    for file in plan.files:
        difference = list(_compare(file, isolation)) if len(lines) < MAX_LINES else []
        signs = [sign for sign, _ in difference]
        counts = f" (+{signs.count('+')} -{signs.count('-')})" if difference else ""
        lines.append(("", f"{_describe(file)}{counts}"))
        room = max(0, MAX_LINES - len(lines))
        lines += difference[:room]
        if len(difference) > room:
            lines.append(("", f"and {count_noun(len(difference) - room, 'more line')}"))
    return tuple(lines)


def _describe(file: MergedFile) -> str:
    kind = "link" if (S_ISLNK(file.mode) if file.after else file.was_link) else "file"
    if not file.before:
        return f"new {kind} {file.path}"
    if not file.after:
        return f"removed {kind} {file.path}"
    return f"link {file.path}" if kind == "link" or file.was_link else file.path


def _compare(file: MergedFile, isolation: Isolation) -> Iterator[PreviewLine]:
    before, after = isolation.read(file.before), isolation.read(file.after)
    if max(len(before), len(after)) > _MAX_BYTES or is_binary(before, after):
        yield ("", f"{len(before):,} bytes now, {len(after):,} bytes then")
        return
    yield from diff_texts(before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
