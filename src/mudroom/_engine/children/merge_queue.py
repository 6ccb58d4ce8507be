"""Queue of the work of children that waits to be merged into the files of their parent.

Work with the same check is merged as a batch: all of it in one tree, and one check. If the check
fails, bisection finds the first work that makes it fail; the work before it is merged.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from ..._core.events import CheckFinished, FileWriteIntended, RunStarted, WorkMerged
from ..._core.ports import (
    MERGE,
    NO_CHOICE,
    Isolation,
    MergeChoice,
    MergeConflict,
    MergePlan,
)
from ..._core.runs import Check, Work
from ..call_context import CallContext, CallWrites
from ..changes.merged_files import ChangedMeanwhileError, write_merged_files
from ..changes.quiet_files import wait_until_quiet
from ..run_context import RunContext
from .checks import find_check_refusal, run_check
from .decisions import ask_for_merge, find_merge_denial

_PURPOSE = "the work of children is merged"
"""What a check decides."""

_MAX_ATTEMPTS = 3
"""Plans of one merge: the user may change files while they are written."""


class MergeOutcome(Struct, frozen=True):
    """The result of a merge.

    Arguments:
        files: paths of the files that were changed.
        conflicts: why nothing was changed; empty if all was merged.
        refusal: why the merge was not allowed, "" if it was.
        check: the check that failed, so nothing was changed; None if none failed.
        fails_without: true if the check fails without the work, too.
        base, tree, own: see `MergePlan`.
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
        """The state in one word: "merged", "conflict", "red" or "refused"."""
        if self.refusal:
            return "refused"
        if self.check:
            return "red"
        return "conflict" if self.conflicts else "merged"


class MergeRequest:
    """Work of a child that waits for its merge.

    Attributes:
        outcome: the result, None while it waits.
        attempts: how often files of the work changed while they were written.
        landed: see `MergePlan`.
    """

    def __init__(
        self,
        context: CallContext,
        run_id: str,
        work: Work,
        check: Check | None,
        choice: MergeChoice = NO_CHOICE,
    ) -> None:
        self.context = context
        self.run_id = run_id
        self.work = work
        self.check = check
        self.choice = choice
        self.landed: tuple[str, ...] = ()
        self.outcome: MergeOutcome | None = None
        self.attempts = 0


class _Step(Struct, frozen=True):
    """A request of a batch, and the plan of the merge of the batch up to it."""

    request: MergeRequest
    plan: MergePlan


class MergeQueue:
    """Works of children of one run, in the order in which the children reported."""

    def __init__(self, run: RunContext, isolation: Isolation) -> None:
        self._run = run
        self._isolation = isolation
        self._waiting: list[MergeRequest] = []
        self._decided: set[str] = set()
        self._early: dict[str, MergeOutcome] = {}
        self._interrupted = _list_interrupted(run)
        self._restored: dict[str, MergeRequest] = {}

    async def merge(self, request: MergeRequest) -> MergeOutcome:
        """Merge work into the files of the run: all of it, or nothing.

        Other work that waits is merged, too, if it can share a check.

        Raises MudroomError.
        """
        self._waiting.append(request)
        try:
            async with self._isolation.lock:
                if early := self._early.pop(request.run_id, None):
                    return early
                while request.outcome is None:
                    await self._merge_batch(await self._choose_batch())
                return request.outcome
        finally:
            if request in self._waiting:
                self._waiting.remove(request)

    async def _choose_batch(self) -> list[MergeRequest]:
        """Return the requests that can share a check, the oldest first."""
        waiting = [request for request in self._waiting if request.run_id not in self._early]
        first = await self._find_interrupted(waiting) or waiting[0]
        if first.check is None:
            return [first]
        batch = await self._restore_batch(first)
        return batch or [request for request in waiting if request.check == first.check]

    async def _find_interrupted(self, waiting: list[MergeRequest]) -> MergeRequest | None:
        """Return the request whose files an earlier process wrote in part; None if there is none.

        It comes first: after other work it may have a conflict, with a part of its files written.
        """
        requests = {**self._restored, **{request.run_id: request for request in waiting}}
        for run_id in self._interrupted:
            if run_id in self._decided:
                continue
            if request := requests.get(run_id):
                return request
            work = await asyncio.to_thread(self._isolation.find_work, run_id)
            if work:
                check = self._find_past_check(run_id)
                request = MergeRequest(waiting[0].context, run_id, work, check)
                self._restored[run_id] = request
                return request
        return None

    def _find_past_check(self, run_id: str) -> Check | None:
        """Return the check that succeeded with the work of a run in an earlier process."""
        services = self._run.services
        for event in reversed(services.past_events.get(self._run.run_id, ())):
            if isinstance(event, CheckFinished) and event.is_green and run_id in event.children:
                return Check(event.command, services.check_seconds, is_from_user=True)
        return None

    async def _restore_batch(self, first: MergeRequest) -> list[MergeRequest]:
        """Return the batch of a request that an earlier process checked, [] if there is none.

        The files may have a part of it: without the rest, the check may fail.
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
                work = await asyncio.to_thread(self._isolation.find_work, run_id)
                if work:
                    batch.append(MergeRequest(first.context, run_id, work, first.check))
        return batch

    async def _merge_batch(self, batch: list[MergeRequest]) -> None:
        """Merge the work of a batch, or refuse it. Decides on at least one request."""
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
        """Merge the work of a batch in trees, each request after the one before it.

        Work that conflicts only with other work of the batch is left out: it waits for the next
        batch.
        """
        steps: list[_Step] = []
        after: MergePlan | None = None
        for request in batch:
            plan = await asyncio.to_thread(
                self._isolation.plan_merge, request.work, after, request.choice
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
        """Return how many of the steps can be merged: the check succeeds with their files."""
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
        return (await run_check(self._run, self._isolation, check, tree, children)).is_green

    async def _return_red(self, check: Check, step: _Step, *, is_first: bool) -> None:
        """Refuse work with which the check fails.

        Arguments:
            is_first: true if no other work was merged before it; perhaps the check fails without
                it.
        """
        request = step.request
        red = await run_check(self._run, self._isolation, check, step.plan.tree)
        fails_without = False
        if is_first:
            base = step.plan.base
            without = await run_check(self._run, self._isolation, check, base)
            fails_without = not without.is_green
        plan = await asyncio.to_thread(self._isolation.plan_merge, request.work)
        outcome = MergeOutcome(check=red, fails_without=fails_without)
        if not plan.conflicts and not fails_without:
            outcome = MergeOutcome(check=red, base=plan.base, tree=plan.tree)
        self._decide(request, outcome)

    async def _apply(self, steps: list[_Step]) -> None:
        """Write the files of the plan of the last step, which has those of all steps.

        If the user changed one of the files meanwhile, the requests that change it, too, wait for
        another plan, or have a conflict.
        """
        plan = steps[-1].plan
        requests = [step.request for step in steps]
        context = requests[0].context
        run_ids = ", ".join(request.run_id for request in requests)
        if refusal := await ask_for_merge(context, run_ids, plan, self._isolation):
            for request in requests:
                self._decide(request, MergeOutcome(refusal=refusal))
            return
        # The files of a batch are not changes of one call: each child names its own.
        writes = CallWrites(self._run, context.call.id if context.call else "")
        try:
            await asyncio.to_thread(write_merged_files, plan, self._isolation, writes.open_landing)
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
        await asyncio.to_thread(self._isolation.mark_merged, request.run_id)
        # The files are also those that an earlier process wrote.
        self._decide(request, MergeOutcome(request.landed))

    def _decide(self, request: MergeRequest, outcome: MergeOutcome) -> None:
        request.outcome = outcome
        self._decided.add(request.run_id)
        if request in self._waiting:
            self._waiting.remove(request)
        else:  # It is of a batch that an earlier process checked, and its child reports later.
            self._early[request.run_id] = outcome


def _list_interrupted(run: RunContext) -> list[str]:
    """Return the runs whose work an earlier process began to write, the oldest first."""
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
    """Merge the work of a run into the files of the parent: all of it, or nothing."""
    run = context.run
    if run.environment.isolation is None:
        return MergeOutcome(refusal="this session has no isolated workspaces")
    queue: MergeQueue | None = run.memo.get(MERGE)
    if queue is None:
        queue = run.memo[MERGE] = MergeQueue(run, run.environment.isolation)
    return await queue.merge(MergeRequest(context, run_id, work, check, choice))
