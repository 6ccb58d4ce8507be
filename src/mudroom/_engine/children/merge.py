"""Merges of the work of children that had isolated workspaces into the files of their parent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from ..._core.agents import WorkspaceKind
from ..._core.counts import count_noun
from ..._core.events import CheckFinished, WorkMerged
from ..._core.ports import MERGE, NO_CHOICE, Isolation, MergeChoice, MergeConflict
from ..._core.runs import Brief, Check, Report, Work
from ...errors import BoardError, MudroomError
from ...projections.engine_text import format_value, quote
from ...projections.safe_text import sanitize_line
from ..call_context import CallContext
from ..run_context import RunContext
from .checks import describe_check
from .merge_queue import MergeOutcome, merge_work
from .overlaps import describe_overlaps, list_overlaps

_MAX_REFUSAL = 2_000
"""Characters of the reason why work is not merged."""
_MAX_LISTED = 20
"""Files and conflicts that the model reads by name."""

_MAX_IGNORED = 3
"""Ignored files that the model reads by name."""

_NOT_STORED = (
    "[merge: not done: {reason}. Your files are unchanged. What the child wrote stays in its "
    "folder, if that is still there; the next start of mudroom stores it.]"
)

PrepareReturn = Callable[[WorkMerged], Awaitable[WorkMerged]]
"""Function that decides whether a child gets its work back. Returns the event for the record."""


async def merge_report(
    context: CallContext, brief: Brief, report: Report, prepare_return: PrepareReturn
) -> WorkMerged | None:
    """Merge the work of a child, once, and record the outcome.

    Returns None for a child that shared its parent's files.

    Arguments:
        brief: of the run that ended.
        prepare_return: called if the work can go back to the child, before the outcome is recorded.
    """
    is_isolated = brief.workspace.kind is WorkspaceKind.ISOLATED
    if report.work is None and not (is_isolated and report.turns):
        return None
    if merged := find_recorded_merge(context.run, report.run_id):
        context.run.evidence.add_merge(merged)
        return merged
    if report.work is None:
        return await _record_lost_work(context.run, report)
    work, notes = report.work, ""
    isolation = context.run.environment.isolation
    if brief.workspace.conflicts and isolation:
        from .resolutions import describe_notes, read_resolutions  # rare: work that came back

        resolutions = read_resolutions(report.text, brief.workspace.conflicts, work.conflicts)
        notes = describe_notes(resolutions)
        work = await asyncio.to_thread(isolation.resolve, report.run_id, work, resolutions.sides)
    return await merge_once(context, brief, work, prepare_return, notes=notes)


async def _record_lost_work(run: RunContext, report: Report) -> WorkMerged | None:
    """Record that the files of a child could not be stored, so that nothing of them is merged."""
    if run.services.recorded_work:
        return None  # a record of an older version: its replay has no further event
    reason = report.unknown_changes or report.error or "its files could not be stored"
    refusal = quote(sanitize_line(reason, _MAX_REFUSAL)).rstrip(".")
    event = run.recorder.make_event(
        WorkMerged, child=report.run_id, state="refused", text=_NOT_STORED.format(reason=refusal)
    )
    await run.recorder.record(event)
    run.evidence.add_merge(event)
    return event


async def merge_once(
    context: CallContext,
    brief: Brief,
    work: Work,
    prepare_return: PrepareReturn | None,
    *,
    call: str = "",
    choice: MergeChoice = NO_CHOICE,
    notes: str = "",
) -> WorkMerged:
    """Merge the work of a run and record the outcome.

    Arguments:
        brief: of the run.
        prepare_return: called if the work can go back to the child, before the outcome is recorded.
        call: place of the call that asks for the merge; "" at the end of the run.
        choice: decides conflicts.
        notes: further lines for the parent.
    """
    run = context.run
    run_id = brief.run_id
    check = None
    try:
        check = await choose_check(run, brief)
        outcome = await merge_work(context, run_id, work, check, choice)
    except MudroomError as error:
        outcome = MergeOutcome(refusal=str(error))
    text = await asyncio.to_thread(_describe, context, run_id, outcome)
    overlaps = await asyncio.to_thread(list_overlaps, run, run_id, work, outcome.conflicts)
    left_out = await asyncio.to_thread(_list_left_out, run, run_id, work, outcome)
    facts = (describe_overlaps(run, overlaps), notes, *_describe_other_files(work, left_out))
    event = run.recorder.make_event(
        WorkMerged,
        child=run_id,
        state=outcome.state,
        files=outcome.files,
        conflicts=tuple((conflict.path, conflict.kind) for conflict in outcome.conflicts),
        open_conflicts=tuple(conflict.file for conflict in outcome.conflicts),
        left_out=left_out,
        text="\n".join(filter(None, (text, *facts))),
        check=_describe_result(outcome, check),
        base=outcome.base,
        tree=outcome.tree,
        own=outcome.own,
        call=call,
        overlaps=overlaps,
    )
    if outcome.tree and prepare_return:
        event = await prepare_return(event)
    await run.recorder.record(event)
    run.evidence.add_merge(event)
    return event


def _list_left_out(
    run: RunContext, run_id: str, work: Work, outcome: MergeOutcome
) -> tuple[str, ...]:
    """Return the paths that the child changed, and that merged work leaves as the parent had them.

    It took the change back when its work came back to it, or it or the parent chose the version of
    the parent. The function blocks.
    """
    isolation = run.environment.isolation
    if outcome.state != "merged" or isolation is None:
        return ()
    works = [isolation.find_work(leg) for leg in run.evidence.list_earlier_legs(run_id)]
    changed = dict.fromkeys(path for each in (*works, work) if each for path in each.files)
    return tuple(path for path in changed if path not in outcome.files)


def _describe_other_files(work: Work, left_out: Sequence[str]) -> Iterator[str]:
    """Yield lines about the files that are not merged, although the rest of the work is."""
    if left_out:
        paths = format_paths(left_out)
        yield f"[decided otherwise, so these files are as you had them: {paths}]"
    if work.missing:
        yield f"[not stored, so not merged: {', '.join(map(format_value, work.missing))}]"
    if ignored := work.ignored:
        names = ", ".join(map(format_value, ignored.names[:_MAX_IGNORED]))
        more = ", …" if ignored.count > _MAX_IGNORED else ""
        verb = "is" if ignored.count == 1 else "are"
        yield f"[{count_noun(ignored.count, 'ignored file')} {verb} not merged: {names}{more}]"


def format_paths(paths: Sequence[str]) -> str:
    """Return the first of some paths, and the number of the others."""
    listed = ", ".join(map(format_value, paths[:_MAX_LISTED]))
    more = len(paths) - _MAX_LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def _describe_result(outcome: MergeOutcome, check: Check | None) -> str:
    """Return the command of the check; if it failed, also how."""
    if outcome.check:
        return describe_check(outcome.check)
    return check.command if check and outcome.state == "merged" and outcome.files else ""


async def choose_check(run: RunContext, brief: Brief) -> Check | None:
    """Return the check for the work of a child: of its task, of its agent, or of the session.

    Raises MudroomError if the task of the board cannot be read.
    """
    services = run.services
    command = brief.agent.check or services.check
    is_from_user = False
    if brief.board_task:
        if services.board is None:
            raise BoardError(f"the check of task #{brief.board_task} needs the task board")
        task = await services.board.get_task(brief.board_task)
        command = task.check or command
        is_from_user = command == task.check and not task.is_imported
    if not command:
        return None
    is_from_user = is_from_user or command == services.check
    return Check(command, services.check_seconds, is_from_user)


def find_recorded_merge(run: RunContext, child: str = "", call: str = "") -> WorkMerged | None:
    """Return the outcome that an earlier process recorded, or that a replay has.

    Arguments:
        child: whose end merged the work. call: place of the call that did; in place of a child.
    """
    if run.services.recorded_work:
        return run.services.recorded_work.find_merge(child, call)
    events = run.services.past_events.get(run.run_id, ())
    merges = (event for event in events if isinstance(event, WorkMerged))
    return next((each for each in merges if is_merge_of(each, child, call)), None)


def is_merge_of(event: WorkMerged, child: str, call: str) -> bool:
    """Return whether an event is the merge of a call, or of the end of a child."""
    return event.call == call and (bool(call) or event.child == child)


def _describe(context: CallContext, run_id: str, outcome: MergeOutcome) -> str:
    """Return the outcome as the parent's model reads it."""
    isolation = context.run.environment.isolation
    if outcome.refusal:
        refusal = quote(sanitize_line(outcome.refusal, _MAX_REFUSAL)).removesuffix(".")
        name = f"{context.run.services.session[:8]}/{run_id}"
        return (
            f"[merge: not done: {refusal}. The work is kept as run {run_id}. The user can merge it "
            f"later with `mudroom workspaces apply {name}`.]"
        )
    if outcome.check:
        return _describe_failure(run_id, outcome, outcome.check)
    if outcome.conflicts and isolation:
        return _describe_conflicts(context, isolation, run_id, outcome.conflicts)
    if not outcome.files:
        return "[merge: the child changed no file]"
    listed = format_paths(outcome.files)
    count = count_noun(len(outcome.files), "file")
    return f"[merge: the child's changes of {count} are in your files now: {listed}]"


def _describe_failure(run_id: str, outcome: MergeOutcome, check: CheckFinished) -> str:
    """Return the check that failed, and the end of its output."""
    text = (
        "[merge: not done, a check of the merged files failed; your files are unchanged, and all "
        f"work of the child is kept as run {run_id}.\n{describe_check(check)}"
    )
    if outcome.fails_without:
        text += "\nThe check fails without the child's changes, too: first make it succeed."
    return text + "]"


def _describe_conflicts(
    context: CallContext, isolation: Isolation, run_id: str, conflicts: tuple[MergeConflict, ...]
) -> str:
    """List the conflicts, with the paths of the contents of all sides."""
    lines = [
        f"[merge: not done, {count_noun(len(conflicts), 'conflict')}; your files are unchanged, "
        f"and all work of the child is kept as run {run_id}."
        + (" Decide with merge." if MERGE in context.run.tools else "")
    ]
    for number, conflict in enumerate(conflicts[:_MAX_LISTED], 1):
        sides = {"base": conflict.base, "parent": conflict.ours, "child": conflict.theirs}
        if conflict.version == "both":
            sides["both, marked"] = conflict.text
        places = [
            f"{name} {_write_side(context, isolation, number, name, content)}"
            for name, content in sides.items()
            if content
        ]
        lines.append(f"- {format_value(conflict.path)} ({conflict.kind}): {', '.join(places)}")
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
