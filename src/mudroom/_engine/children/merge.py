"""Merges of the work of children that had isolated workspaces into the files of their parent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from ..._core.counts import count_noun
from ..._core.events import PermissionDecided, WorkMerged
from ..._core.messages import ToolCallBlock
from ..._core.ports import (
    MERGE,
    ApprovalDecision,
    ApprovalRequest,
    Isolation,
    MergeConflict,
    MergePlan,
    PermissionVerdict,
)
from ..._core.runs import Report, Work
from ..._core.tools import ToolCategory, ToolResult
from ...errors import MudroomError
from ..call_context import CallContext
from ..changes.merge_preview import preview_merge
from ..changes.merged_files import ChangedMeanwhileError, write_merged_files
from ..run_context import RunContext

_MAX_ATTEMPTS = 3
"""Plans of one merge: the user may change files while they are written."""

_MAX_LISTED = 20
"""Files and conflicts that the model reads by name."""

_VERDICTS = ("deny", "ask", "allow")


class MergeOutcome(Struct, frozen=True):
    """The result of a merge.

    Arguments:
        files: paths of the files that were changed.
        conflicts: why nothing was changed; empty if all was merged.
        refusal: why the merge was not allowed, "" if it was.
        base, tree: see `MergePlan`.
    """

    files: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    refusal: str = ""
    base: str = ""
    tree: str = ""

    @property
    def state(self) -> str:
        """The state in one word: "merged", "conflict" or "refused"."""
        if self.refusal:
            return "refused"
        return "conflict" if self.conflicts else "merged"


PrepareReturn = Callable[[WorkMerged], Awaitable[WorkMerged]]
"""Function that decides whether a child gets its work back. Returns the event for the record."""


async def merge_report(
    context: CallContext, report: Report, prepare_return: PrepareReturn
) -> WorkMerged | None:
    """Merge the work of a child, once, and record the outcome.

    Returns None for a child that shared its parent's files.

    Arguments:
        prepare_return: called if the work conflicts, before the outcome is recorded.
    """
    run = context.run
    if report.work is None:
        return None
    if merged := _find_recorded(run, report.run_id):
        run.evidence.add_files(ToolResult("", changes=merged.files))
        return merged
    try:
        outcome = await merge_work(context, report.run_id, report.work)
    except MudroomError as error:
        outcome = MergeOutcome(refusal=str(error))
    text = await asyncio.to_thread(_describe, context, report.run_id, outcome)
    if report.work.missing:
        text += f"\n[not stored, so not merged: {', '.join(report.work.missing)}]"
    event = run.recorder.make_event(
        WorkMerged,
        child=report.run_id,
        state=outcome.state,
        files=outcome.files,
        conflicts=tuple((conflict.path, conflict.kind) for conflict in outcome.conflicts),
        text=text,
        base=outcome.base,
        tree=outcome.tree,
    )
    if outcome.tree:
        event = await prepare_return(event)
    await run.recorder.record(event)
    run.evidence.add_files(ToolResult("", changes=outcome.files))
    return event


def _find_recorded(run: RunContext, child: str) -> WorkMerged | None:
    """Return the outcome that an earlier process recorded, or that a replay has."""
    if run.services.recorded_work:
        return run.services.recorded_work.find_merge(child)
    events = run.services.past_events.get(run.run_id, ())
    return next(
        (event for event in events if isinstance(event, WorkMerged) and event.child == child), None
    )


async def merge_work(context: CallContext, run_id: str, work: Work) -> MergeOutcome:
    """Merge the work of a run into the files of the parent: all of it, or nothing."""
    isolation = context.run.environment.isolation
    if isolation is None:
        return MergeOutcome(refusal="this session has no isolated workspaces")
    conflicts: tuple[MergeConflict, ...] = ()
    async with isolation.lock:
        for _ in range(_MAX_ATTEMPTS):
            plan = await asyncio.to_thread(isolation.plan_merge, work)
            if plan.conflicts:
                return MergeOutcome(conflicts=plan.conflicts, base=plan.base, tree=plan.tree)
            if refusal := await _check_permission(context, run_id, plan, isolation):
                return MergeOutcome(refusal=refusal)
            try:
                present = context.run.environment.workspace
                await asyncio.to_thread(
                    write_merged_files, plan, isolation, present, context.workspace
                )
            except ChangedMeanwhileError as change:
                path, theirs = change.file.path, change.file.after
                conflicts = (MergeConflict(path, "changed-meanwhile", theirs=theirs),)
                continue
            await asyncio.to_thread(isolation.mark_merged, run_id)
            return MergeOutcome(work.files)  # also those that an earlier process wrote
    return MergeOutcome(conflicts=conflicts)


async def _check_permission(
    context: CallContext, run_id: str, plan: MergePlan, isolation: Isolation
) -> str:
    """Ask the rules, the mode and the user once for all files. Return why not, "" if allowed."""
    run = context.run
    tool = run.services.toolbox.get("write")
    if not plan.files:
        return ""
    if tool is None:
        return "no file may be written in this session"
    call = ToolCallBlock(context.call.id if context.call else "", MERGE, {"run": run_id})
    verdicts = [
        run.environment.policy.judge(call, tool, {"path": file.path, "content": ""}, run.brief)
        for file in plan.files
    ]
    verdict = min(verdicts, key=lambda each: _VERDICTS.index(each.verdict))
    if verdict.verdict == "allow":
        return ""
    decision = ApprovalDecision(False)
    if verdict.verdict == "ask":
        paths = [file.path for file in plan.files]
        request = ApprovalRequest(
            run.run_id,
            run.brief.agent.name,
            MERGE,
            {"run": run_id, "files": paths},
            f"{count_noun(len(paths), 'file')} of yours would change",
            call.id,
            category=ToolCategory.WRITE,
            name=run.brief.name,
            change=await asyncio.to_thread(preview_merge, plan, isolation),
        )
        with run.meter.pause():
            decision = await run.services.approver.decide(request)
    await _record_decision(context, call.id, verdict, decision)
    if decision.allowed:
        return ""
    return decision.why or verdict.why or "the user said no"


async def _record_decision(
    context: CallContext, call_id: str, verdict: PermissionVerdict, decision: ApprovalDecision
) -> None:
    event = context.run.recorder.make_event(
        PermissionDecided,
        call_id=call_id,
        name=MERGE,
        verdict=verdict.verdict,
        allowed=decision.allowed,
        policy_reason=verdict.why,
        approver_reason=decision.why,
        rule=verdict.rule,
    )
    await context.run.recorder.record(event)


def _describe(context: CallContext, run_id: str, outcome: MergeOutcome) -> str:
    """Return the outcome as the parent's model reads it."""
    isolation = context.run.environment.isolation
    if outcome.refusal:
        return f"[merge: not done: {outcome.refusal}. The work is kept as run {run_id}.]"
    if outcome.conflicts and isolation:
        return _describe_conflicts(context, isolation, run_id, outcome.conflicts)
    if not outcome.files:
        return "[merge: the child changed no file]"
    listed = ", ".join(outcome.files[:_MAX_LISTED])
    more = len(outcome.files) - _MAX_LISTED
    listed += f" and {more} more" if more > 0 else ""
    count = count_noun(len(outcome.files), "file")
    return f"[merge: the child's changes of {count} are in your files now: {listed}]"


def _describe_conflicts(
    context: CallContext, isolation: Isolation, run_id: str, conflicts: tuple[MergeConflict, ...]
) -> str:
    """List the conflicts, with the paths of the contents of all sides."""
    lines = [
        f"[merge: not done, {count_noun(len(conflicts), 'conflict')}; your files are unchanged, "
        f"and all work of the child is kept as run {run_id}."
    ]
    for number, conflict in enumerate(conflicts[:_MAX_LISTED], 1):
        sides = {
            "base": conflict.base,
            "parent": conflict.ours,
            "child": conflict.theirs,
            "both, marked": conflict.text,
        }
        places = [
            f"{name} {_write_side(context, isolation, number, name, content)}"
            for name, content in sides.items()
            if content
        ]
        lines.append(f"- {conflict.path} ({conflict.kind}): {', '.join(places)}")
    if len(conflicts) > _MAX_LISTED:
        lines.append(f"- and {len(conflicts) - _MAX_LISTED} more")
    return "\n".join(lines) + "]"


def _write_side(
    context: CallContext, isolation: Isolation, number: int, name: str, content: str
) -> str:
    """Write one side of a conflict to a file that the model can read; return its path."""
    path = context.spill_path(f"merge-{number}-{name.partition(',')[0]}")
    with open(path, "wb") as file:
        file.write(isolation.read(content))
    return path
