"""Merges of the work of children that had isolated workspaces into the files of their parent."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from ..._core.agents import WorkspaceKind
from ..._core.counts import count_noun
from ..._core.events import PermissionDecided
from ..._core.messages import ToolCallBlock
from ..._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Isolation,
    MergeConflict,
    MergedFile,
    MergePlan,
    PermissionVerdict,
)
from ..._core.runs import Report, Work
from ..._core.tools import ToolCategory
from ...errors import MudroomError
from ..call_context import CallContext

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
    """

    files: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    refusal: str = ""

    @property
    def state(self) -> str:
        """The state in one word: "merged", "conflict" or "refused"."""
        if self.refusal:
            return "refused"
        return "conflict" if self.conflicts else "merged"

    def to_json(self) -> dict[str, Any]:
        """Return the outcome for the record."""
        conflicts = [{"path": each.path, "kind": each.kind} for each in self.conflicts]
        return {"state": self.state, "files": list(self.files), "conflicts": conflicts}


class _ChangedMeanwhileError(Exception):
    """A file differs from what the merge was planned with."""

    def __init__(self, file: MergedFile) -> None:
        super().__init__(file.path)
        self.file = file


async def merge_report(context: CallContext, report: Report) -> tuple[str, MergeOutcome | None]:
    """Merge the work of a child. Return a line for its parent's model, and the outcome.

    Returns "" and None for a child that shared its parent's files.
    """
    isolation = context.run.environment.isolation
    if report.work is None or isolation is None:
        return "", None
    try:
        outcome = await merge_work(context, report.run_id, report.work)
    except MudroomError as error:
        outcome = MergeOutcome(refusal=str(error))
    text = await asyncio.to_thread(_describe, context, isolation, report.run_id, outcome)
    if report.work.missing:
        text += f"\n[not stored, so not merged: {', '.join(report.work.missing)}]"
    return text, outcome


async def merge_work(context: CallContext, run_id: str, work: Work) -> MergeOutcome:
    """Merge the work of a run into the files of the parent: all of it, or nothing."""
    isolation = context.run.environment.isolation
    assert isolation is not None
    conflicts: tuple[MergeConflict, ...] = ()
    async with isolation.lock:
        for _ in range(_MAX_ATTEMPTS):
            plan = await asyncio.to_thread(isolation.plan_merge, work)
            if plan.conflicts:
                return MergeOutcome(conflicts=plan.conflicts)
            if refusal := await _check_permission(context, run_id, plan):
                return MergeOutcome(refusal=refusal)
            try:
                await asyncio.to_thread(_apply, context, isolation, plan)
            except _ChangedMeanwhileError as change:
                path, theirs = change.file.path, change.file.after
                conflicts = (MergeConflict(path, "changed-meanwhile", theirs=theirs),)
                continue
            await asyncio.to_thread(isolation.mark_merged, run_id)
            return MergeOutcome(tuple(file.path for file in plan.files))
    return MergeOutcome(conflicts=conflicts)


def _apply(context: CallContext, isolation: Isolation, plan: MergePlan) -> None:
    """Write the files of a plan, each if it is still as it was when the plan was made.

    A merge that ends in the middle is continued by the next one: files that are written already do
    not differ any more.
    """
    workspace = context.workspace
    for file in plan.files:
        if _find_present_id(context, isolation, file.path) != file.before:
            raise _ChangedMeanwhileError(file)
        if file.after:
            workspace.write(file.path, isolation.read(file.after), mode=file.mode)
        else:
            workspace.remove(file.path)


def _find_present_id(context: CallContext, isolation: Isolation, path: str) -> str:
    """Return the id of the present content of a file, "" if there is none."""
    workspace = context.run.environment.workspace
    try:
        size = workspace.stat(path).size
        return isolation.find_id(workspace.read(path, 0, size + 1))
    except MudroomError:
        return ""


async def _check_permission(context: CallContext, run_id: str, plan: MergePlan) -> str:
    """Ask the rules, the mode and the user once for all files. Return why not, "" if allowed."""
    run = context.run
    tool = run.services.toolbox.get("write")
    if not plan.files:
        return ""
    if tool is None:
        return "no file may be written in this session"
    call = ToolCallBlock(context.call.id if context.call else "", "merge", {"run": run_id})
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
            "merge",
            {"run": run_id, "files": paths},
            f"{count_noun(len(paths), 'file')} of yours would change",
            call.id,
            category=ToolCategory.WRITE,
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
        name="merge",
        verdict=verdict.verdict,
        allowed=decision.allowed,
        policy_reason=verdict.why,
        approver_reason=decision.why,
        rule=verdict.rule,
    )
    await context.run.recorder.record(event)


def _describe(
    context: CallContext, isolation: Isolation, run_id: str, outcome: MergeOutcome
) -> str:
    """Return the outcome as the parent's model reads it."""
    if outcome.refusal:
        return f"[merge: not done: {outcome.refusal}. The work is kept as run {run_id}.]"
    if outcome.conflicts:
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
            "yours": conflict.ours,
            "the child's": conflict.theirs,
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
    word = name.split(",")[0].replace("the child's", "childs")
    path = context.spill_path(f"merge-{number}-{word}")
    with open(path, "wb") as file:
        file.write(isolation.read(content))
    return path


def has_isolated_files(kind: WorkspaceKind) -> bool:
    """Return whether a child does not change its parent's files while it works."""
    return kind in (WorkspaceKind.COPY, WorkspaceKind.ISOLATED)
