"""Merges the work of children in isolated workspaces into their parent's files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from msgspec import Struct

from ..._core.events import CheckFinished, FileWriteIntended, RunStarted, WorkMerged
from ..._core.listings import count_noun
from ..._core.ports import MERGE, NO_CHOICE, FileTrees, MergeChoice, MergeConflict, MergePlan
from ..._core.runs import Brief, Check, Report, Work
from ..._projections.engine_text import format_value, quote
from ..._projections.safe_text import sanitize_line
from ...errors import BoardError, MudroomError
from ..call_context import CallContext, CallWrites
from ..changes.merged_files import ChangedMeanwhileError, wait_until_quiet, write_merged_files
from ..changes.watch import select_unstored
from ..run_context import RunContext
from .checks import ask_for_merge, describe_check, find_check_refusal, find_merge_denial, run_check
from .merge_notes import collect_git_work, describe_git_work, describe_overlaps, list_overlaps

_MAX_REFUSAL = 2_000  # characters of the reason for not merging
_MAX_LISTED = 20  # files and conflicts named to the model
_MAX_IGNORED = 3  # ignored files named to the model

_NOT_STORED = (
    "[merge: not done: {reason}. Your files are unchanged. What the child wrote stays in its "
    "folder, if that is still there; the next start of mudroom stores it.]"
)

_ENDED_EARLY = "the run ended before its files were stored"

PrepareReturn = Callable[[WorkMerged], Awaitable[WorkMerged]]
"""Decides whether a child gets its work back; returns the event to record."""


async def merge_report(
    context: CallContext, brief: Brief, report: Report, prepare_return: PrepareReturn
) -> WorkMerged | None:
    """Merge an isolated child's work, once, and record the outcome."""
    if merged := find_recorded_merge(context.run, report.run_id):
        context.run.evidence.add_merge(merged)
        return merged
    if report.work is None:
        return await _record_lost_work(context.run, report)
    work, notes = report.work, ""
    trees = context.run.environment.trees
    if brief.workspace.conflicts and trees:
        from .returned_work import describe_notes, read_resolutions

        resolutions = read_resolutions(report.text, brief.workspace.conflicts, work.conflicts)
        notes = describe_notes(resolutions)
        work = await asyncio.to_thread(trees.resolve, report.run_id, work, resolutions.sides)
    return await merge_once(context, brief, work, prepare_return, notes=notes)


async def _record_lost_work(run: RunContext, report: Report) -> WorkMerged | None:
    """Record that a child's files could not be stored, so that none of them are merged."""
    if run.services.recorded_work:
        return None  # records of older versions have no such event to replay
    reason = select_unstored(report.unknown_changes) or report.error or _ENDED_EARLY
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
    """Merge a run's work and record the outcome.

    If the work can go back to the child, `prepare_return` is called before the outcome is recorded.
    `call` is the place of the call that asks for the merge, "" at the end of the run. `notes` are
    additional lines for the parent.
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
    git_works = await asyncio.to_thread(collect_git_work, run, run_id, work)
    facts = (
        describe_overlaps(run, overlaps),
        notes,
        *_describe_other_files(work, left_out),
        *describe_git_work(run.services.session, git_works),
    )
    event = run.recorder.make_event(
        WorkMerged,
        child=run_id,
        state=outcome.state,
        files=outcome.files,
        conflicts=tuple((conflict.path, conflict.kind) for conflict in outcome.conflicts),
        open_conflicts=tuple(conflict.file for conflict in outcome.conflicts),
        left_out=left_out,
        only_in_git=tuple(
            name for each in git_works.values() for name in (*each.only, *each.unread)
        ),
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
    """List paths the child changed but the merge left as the parent had them.

    Either the child undid the change when it got its work back, or one of the two chose the
    parent's version. Blocks.
    """
    trees = run.environment.trees
    if outcome.state != "merged" or trees is None:
        return ()
    works = [trees.find_work(leg) for leg in run.evidence.list_earlier_legs(run_id)]
    changed = dict.fromkeys(path for each in (*works, work) if each for path in each.files)
    return tuple(path for path in changed if path not in outcome.files)


def _describe_other_files(work: Work, left_out: Sequence[str]) -> Iterator[str]:
    """Describe files that are not merged although the rest of the work is."""
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
    listed = ", ".join(map(format_value, paths[:_MAX_LISTED]))
    more = len(paths) - _MAX_LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def _describe_result(outcome: MergeOutcome, check: Check | None) -> str:
    if outcome.check:
        return describe_check(outcome.check)
    return check.command if check and outcome.state == "merged" and outcome.files else ""


async def choose_check(run: RunContext, brief: Brief) -> Check | None:
    """Return the check for a child's work: its task's, its agent's, or the session's.

    Raises MudroomError if the task cannot be read from the board.
    """
    services = run.services
    command = brief.agent.check or services.isolation.check
    is_from_user = False
    if brief.board_task:
        if services.board is None:
            raise BoardError(f"the check of task #{brief.board_task} needs the task board")
        task = await services.board.get_task(brief.board_task)
        command = task.check or command
        is_from_user = command == task.check and not task.is_imported
    if not command:
        return None
    is_from_user = is_from_user or command == services.isolation.check
    return Check(command, services.isolation.check_seconds, is_from_user)


def find_recorded_merge(run: RunContext, child: str = "", call: str = "") -> WorkMerged | None:
    """Find the outcome recorded by an earlier process, or by the record of a replay.

    It belongs to the end of `child`, or to the call at the place `call`.
    """
    if run.services.recorded_work:
        return run.services.recorded_work.find_merge(child, call)
    events = run.services.past_events.get(run.run_id, ())
    merges = (event for event in events if isinstance(event, WorkMerged))
    return next((each for each in merges if is_merge_of(each, child, call)), None)


def is_merge_of(event: WorkMerged, child: str, call: str) -> bool:
    return event.call == call and (bool(call) or event.child == child)


def _describe(context: CallContext, run_id: str, outcome: MergeOutcome) -> str:
    trees = context.run.environment.trees
    if outcome.refusal:
        refusal = quote(sanitize_line(outcome.refusal, _MAX_REFUSAL)).removesuffix(".")
        name = f"{context.run.services.session[:8]}/{run_id}"
        return (
            f"[merge: not done: {refusal}. The work is kept as run {run_id}. The user can merge it "
            f"later with `mudroom workspaces apply {name}`.]"
        )
    if outcome.check:
        return _describe_failure(run_id, outcome, outcome.check)
    if outcome.conflicts and trees:
        return _describe_conflicts(context, trees, run_id, outcome.conflicts)
    if not outcome.files:
        return "[merge: the child changed no file]"
    listed = format_paths(outcome.files)
    count = count_noun(len(outcome.files), "file")
    return f"[merge: the child's changes of {count} are in your files now: {listed}]"


def _describe_failure(run_id: str, outcome: MergeOutcome, check: CheckFinished) -> str:
    text = (
        "[merge: not done, a check of the merged files failed; your files are unchanged, and all "
        f"work of the child is kept as run {run_id}.\n{describe_check(check)}"
    )
    if outcome.fails_without:
        text += "\nThe check fails without the child's changes, too: first make it succeed."
    return text + "]"


def _describe_conflicts(
    context: CallContext, trees: FileTrees, run_id: str, conflicts: tuple[MergeConflict, ...]
) -> str:
    """List the conflicts, with the paths of each side's content."""
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
            f"{name} {_write_side(context, trees, number, name, content)}"
            for name, content in sides.items()
            if content
        ]
        lines.append(f"- {format_value(conflict.path)} ({conflict.kind}): {', '.join(places)}")
    if len(conflicts) > _MAX_LISTED:
        lines.append(f"- and {len(conflicts) - _MAX_LISTED} more")
    return "\n".join(lines) + "]"


def _write_side(
    context: CallContext, trees: FileTrees, number: int, name: str, content: str
) -> str:
    path = context.spill_path(f"merge-{number}-{name.partition(',')[0]}")
    with open(path, "wb") as file:
        file.write(trees.read(content))
    return path


_PURPOSE = "the work of children is merged"  # what a check decides
_MAX_ATTEMPTS = 3  # plans per merge: the user may change files while they are being written


class MergeOutcome(Struct, frozen=True):
    """The result of a merge; see `MergePlan` for `base`, `tree` and `own`.

    Nothing was changed if there are `conflicts`, a `refusal`, or a failed `check`. With
    `fails_without`, the check fails even without the work.
    """

    files: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    refusal: str = ""
    check: CheckFinished | None = None
    fails_without: bool = False
    base: str = ""
    tree: str = ""
    own: str = ""

    @property
    def state(self) -> str:
        if self.refusal:
            return "refused"
        if self.check:
            return "red"
        return "conflict" if self.conflicts else "merged"


class MergeRequest(Struct, eq=False):
    """A child's work, waiting to be merged."""

    context: CallContext
    run_id: str
    work: Work
    check: Check | None
    choice: MergeChoice = NO_CHOICE
    landed: tuple[str, ...] = ()  # see `MergePlan`
    outcome: MergeOutcome | None = None
    attempts: int = 0  # how often its files changed while they were being written


class _Step(Struct, frozen=True):
    """A request in a batch, and the plan that merges the batch up to it."""

    request: MergeRequest
    plan: MergePlan


class MergeQueue:
    """Queues the work of a run's children, in the order of their reports."""

    def __init__(self, run: RunContext, trees: FileTrees) -> None:
        self._run = run
        self._trees = trees
        self._waiting: list[MergeRequest] = []
        self._decided: set[str] = set()
        self._early: dict[str, MergeOutcome] = {}
        self._interrupted = _list_interrupted(run)
        self._restored: dict[str, MergeRequest] = {}

    async def merge(self, request: MergeRequest) -> MergeOutcome:
        """Merge work into the run's files: all of it, or nothing.

        Other waiting work is merged along with it if it can share a check.

        Raises MudroomError.
        """
        self._waiting.append(request)
        try:
            async with self._trees.lock:
                if early := self._early.pop(request.run_id, None):
                    return early
                while request.outcome is None:
                    await self._merge_batch(await self._choose_batch())
                return request.outcome
        finally:
            if request in self._waiting:
                self._waiting.remove(request)

    async def _choose_batch(self) -> list[MergeRequest]:
        """List the requests that can share a check, oldest first."""
        waiting = [request for request in self._waiting if request.run_id not in self._early]
        first = await self._find_interrupted(waiting) or waiting[0]
        if first.check is None:
            return [first]
        batch = await self._restore_batch(first)
        return batch or [request for request in waiting if request.check == first.check]

    async def _find_interrupted(self, waiting: list[MergeRequest]) -> MergeRequest | None:
        """Find the request whose files an earlier process wrote in part, if there is one.

        It goes first: after other work it might conflict, with some of its files already written.
        """
        requests = {**self._restored, **{request.run_id: request for request in waiting}}
        for run_id in self._interrupted:
            if run_id in self._decided:
                continue
            if request := requests.get(run_id):
                return request
            work = await asyncio.to_thread(self._trees.find_work, run_id)
            if work:
                check = self._find_past_check(run_id)
                request = MergeRequest(waiting[0].context, run_id, work, check)
                self._restored[run_id] = request
                return request
        return None

    def _find_past_check(self, run_id: str) -> Check | None:
        services = self._run.services
        for event in reversed(services.past_events.get(self._run.run_id, ())):
            if isinstance(event, CheckFinished) and event.is_green and run_id in event.children:
                return Check(event.command, services.isolation.check_seconds, is_from_user=True)
        return None

    async def _restore_batch(self, first: MergeRequest) -> list[MergeRequest]:
        """Restore the batch that an earlier process checked with a request; [] if there is none.

        Part of it may already be in the files, and the check may fail without the rest.
        """
        events = self._run.services.past_events.get(self._run.run_id, ())
        batches = [
            event.children
            for event in events
            if isinstance(event, CheckFinished) and event.is_green
        ]
        children = next((each for each in reversed(batches) if first.run_id in each), ())
        decided = {event.child for event in events if isinstance(event, WorkMerged)} | self._decided
        waiting = {request.run_id: request for request in self._waiting}
        batch: list[MergeRequest] = []
        for run_id in children:
            if run_id in waiting:
                batch.append(waiting[run_id])
            elif run_id not in decided:
                work = await asyncio.to_thread(self._trees.find_work, run_id)
                if work:
                    batch.append(MergeRequest(first.context, run_id, work, first.check))
        return batch

    async def _merge_batch(self, batch: list[MergeRequest]) -> None:
        """Merge or refuse the work of a batch, deciding on at least one request."""
        steps = await self._stage(batch)
        check = batch[0].check
        if not steps:
            return
        if check is None:
            await self._apply(steps)
            return
        if refusal := await find_check_refusal(self._run, check, _PURPOSE, batch[0].context.call):
            text = f"the check {check.command!r} may not run: {refusal}"
            for step in steps:
                self._decide(step.request, MergeOutcome(refusal=text))
            return
        count = await self._count_green(check, steps)
        if count:
            await self._apply(steps[:count])
        states = [step.request.outcome and step.request.outcome.state for step in steps[:count]]
        if count < len(steps) and states == ["merged"] * count:
            await self._return_red(check, steps[count], is_first=count == 0)

    async def _stage(self, batch: list[MergeRequest]) -> list[_Step]:
        """Merge the work of a batch in trees, each request on top of the one before.

        Work that conflicts only with other work of the batch waits for the next batch.
        """
        steps: list[_Step] = []
        after: MergePlan | None = None
        for request in batch:
            plan = await asyncio.to_thread(
                self._trees.plan_merge, request.work, after, request.choice
            )
            request.landed = plan.landed
            if plan.conflicts:
                if not steps:
                    outcome = MergeOutcome(
                        conflicts=plan.conflicts, base=plan.base, tree=plan.tree, own=plan.own
                    )
                    self._decide(request, outcome)
            elif refusal := await find_merge_denial(request.context, request.run_id, plan):
                self._decide(request, MergeOutcome(refusal=refusal))
            elif after is None and plan.tree == plan.base:
                await self._mark_merged(request)
            else:
                steps.append(_Step(request, plan))
                after = plan
        return steps

    async def _count_green(self, check: Check, steps: list[_Step]) -> int:
        """Count the steps that can be merged because the check succeeds with their files."""
        if await self._is_green(check, steps):
            return len(steps)
        green = 0
        red = len(steps)
        while red - green > 1:
            middle = (green + red) // 2
            if await self._is_green(check, steps[:middle]):
                green = middle
            else:
                red = middle
        return green

    async def _is_green(self, check: Check, steps: list[_Step]) -> bool:
        children = tuple(step.request.run_id for step in steps)
        tree = steps[-1].plan.tree
        return (await run_check(self._run, self._trees, check, tree, children)).is_green

    async def _return_red(self, check: Check, step: _Step, *, is_first: bool) -> None:
        """Refuse work that makes the check fail.

        If the work `is_first`, with no other work before it, the check may also fail without it.
        """
        request = step.request
        red = await run_check(self._run, self._trees, check, step.plan.tree)
        fails_without = False
        if is_first:
            base = step.plan.base
            without = await run_check(self._run, self._trees, check, base)
            fails_without = not without.is_green
        plan = await asyncio.to_thread(self._trees.plan_merge, request.work)
        outcome = MergeOutcome(check=red, fails_without=fails_without)
        if not plan.conflicts and not fails_without:
            outcome = MergeOutcome(check=red, base=plan.base, tree=plan.tree)
        self._decide(request, outcome)

    async def _apply(self, steps: list[_Step]) -> None:
        """Write the files of the last step's plan, which includes those of all steps.

        If the user has changed one of the files meanwhile, the requests that also change it wait
        for another plan, or conflict.
        """
        plan = steps[-1].plan
        requests = [step.request for step in steps]
        context = requests[0].context
        run_ids = ", ".join(request.run_id for request in requests)
        if refusal := await ask_for_merge(context, run_ids, plan, self._trees):
            for request in requests:
                self._decide(request, MergeOutcome(refusal=refusal))
            return
        # A batch's files are not the changes of one call: each child names its own.
        writes = CallWrites(self._run, context.call_id)
        try:
            await asyncio.to_thread(write_merged_files, plan, self._trees, writes.open_landing)
        except ChangedMeanwhileError as change:
            path = change.file.path
            conflict = MergeConflict(path, "changed-meanwhile", theirs=change.file.after)
            concerned = [each for each in requests if path in each.work.files] or requests
            for request in concerned:
                request.attempts += 1
                if request.attempts >= _MAX_ATTEMPTS:
                    self._decide(request, MergeOutcome(conflicts=(conflict,)))
            if any(each.attempts == _MAX_ATTEMPTS - 1 for each in concerned):
                workspace = self._run.environment.workspace
                await wait_until_quiet(self._run.services.clock, workspace, path)
            return
        for request in requests:
            await self._mark_merged(request)

    async def _mark_merged(self, request: MergeRequest) -> None:
        await asyncio.to_thread(self._trees.mark_merged, request.run_id)
        # These include files that an earlier process wrote.
        self._decide(request, MergeOutcome(request.landed))

    def _decide(self, request: MergeRequest, outcome: MergeOutcome) -> None:
        request.outcome = outcome
        self._decided.add(request.run_id)
        if request in self._waiting:
            self._waiting.remove(request)
        else:  # part of a batch checked by an earlier process; its child reports later
            self._early[request.run_id] = outcome


def _list_interrupted(run: RunContext) -> list[str]:
    """List the runs whose work an earlier process began to write, oldest first."""
    past = run.services.past_events
    own = past.get(run.run_id, ())
    merged = {event.child for event in own if isinstance(event, WorkMerged)}
    children = {
        event.brief.call_id: event.brief.run_id
        for events in past.values()
        for event in events
        if isinstance(event, RunStarted) and event.brief.parent == run.run_id
    }
    calls = dict.fromkeys(event.call_id for event in own if isinstance(event, FileWriteIntended))
    run_ids = [children[call_id] for call_id in calls if call_id in children]
    return [run_id for run_id in run_ids if run_id not in merged]


async def merge_work(
    context: CallContext,
    run_id: str,
    work: Work,
    check: Check | None,
    choice: MergeChoice = NO_CHOICE,
) -> MergeOutcome:
    run = context.run
    if run.environment.trees is None:
        return MergeOutcome(refusal="this session has no isolated workspaces")
    queue: MergeQueue | None = run.memo.get(MERGE)
    if queue is None:
        queue = run.memo[MERGE] = MergeQueue(run, run.environment.trees)
    return await queue.merge(MergeRequest(context, run_id, work, check, choice))
