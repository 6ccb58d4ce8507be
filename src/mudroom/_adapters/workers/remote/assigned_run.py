"""Runs in a worker process, as the session's process tracks them: each run, and all of them.

A process with runs is killed if it is silent for too long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...._core.budgets import SHARED_LIMITS, Limit, LimitState
from ...._core.events import (
    MessageSent,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from ...._core.messages import NO_USAGE, Usage
from ...._core.ports import WorkerConnection
from ...._core.runs import Brief, Report, find_parent_id, make_sort_key
from ...._engine.meters.account import Admission, Permit
from ...._engine.meters.meter import Meter
from ...._engine.meters.request_gate import RequestGate
from ...._platform.processes import Activity
from ....errors import BudgetExceeded
from .messages import Charge, ParentMeterState, RequestAdmission


@dataclass(slots=True)
class _Charged:
    """Charges by one process for a run and those below it. `charges`: their number."""

    usage: Usage = NO_USAGE
    usd: float = 0.0
    estimate: Usage = NO_USAGE
    children: int = 0
    turns: int = 0
    charges: int = 0


class AssignedRun:
    """A run's state in a worker process, kept by the session's process.

    `on_outcome` gets the run's report, the exception that ended it, or WorkerLost. `now` is the
    session's clock, which times its events.

    `recorded` has the stored events of the run and those below it, `live` the ids of those that
    have started but not ended. `on_begin` is called when the run has started or continues in
    another process. `sent_brief` is the brief as the process received it.
    """

    __slots__ = (
        "_admissions",
        "_charged",
        "_has_ended",
        "_now",
        "_paused_at",
        "_started_at",
        "_waiting",
        "brief",
        "live",
        "meter",
        "on_begin",
        "on_outcome",
        "recorded",
        "sent_brief",
    )

    def __init__(
        self,
        brief: Brief,
        meter: Meter,
        past: dict[str, list[StoredEvent]],
        on_outcome: Callable[[Report[Any] | BaseException], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.brief = brief
        self.sent_brief = brief
        self.meter = meter
        meter.member.is_elsewhere = True
        self.on_outcome = on_outcome
        self.recorded = past
        self.live: set[str] = set()
        self.on_begin: Callable[[], None] | None = None
        self._charged = _Charged()
        # A task takes a kilobyte, so only its outcome is kept once it ends.
        self._admissions: dict[int, asyncio.Task[Permit | LimitState] | Permit | LimitState] = {}
        self._waiting: dict[tuple[str, str], asyncio.Future[bool]] = {}
        self._has_ended = False
        self._now = now
        self._started_at = time.monotonic()
        self._paused_at: list[float] = []

    @property
    def is_overdue(self) -> bool:
        """True if the time limit of the run, or of a run above it, has passed.

        The run's process enforces the limit, but cannot while it hangs.
        """
        if self._paused_at:
            return False
        limit = self.meter.budget.seconds
        if limit is not None and time.monotonic() - self._started_at > limit:
            return True
        above = self.meter.find_time_above()
        return above is not None and above.seconds <= 0

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clocks of the run and its ancestors; calls nest."""
        if paused:
            self._paused_at.append(time.monotonic())
        else:
            began = self._paused_at.pop()
            if not self._paused_at:
                self._started_at += time.monotonic() - began
        if self.meter.parent is not None:
            self.meter.parent.set_paused(paused)

    @property
    def run_id(self) -> str:
        return self.brief.run_id

    def add(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            self.recorded.setdefault(event.run, []).append(event)
            if isinstance(event, (RunStarted, RunResumed)):
                self.live.add(event.run)
                if event.run == self.run_id and self.on_begin is not None:
                    self.on_begin()
            elif isinstance(event, RunFinished):
                self.live.discard(event.run)
                self._end_waiting(event.run)
            elif isinstance(event, MessageSent):
                future = self._waiting.pop((event.run, event.message.id), None)
                if future is not None:
                    future.set_result(True)

    def select_former_folders(self, folders: Mapping[str, str]) -> dict[str, str]:
        """Select the former folders of its recorded runs and of the run it continues."""
        runs = (*self.recorded, self.brief.continues)
        return {run: folders[run] for run in runs if run in folders}

    def count_turns(self) -> int:
        events = self.recorded.get(self.run_id, ())
        return sum(isinstance(event, TurnFinished) for event in events)

    async def wait_until_stored(self, run_id: str, message_id: str) -> bool:
        """Wait until a message is in the journal; return False if its run ends without it."""
        events = self.recorded.get(run_id, [])
        if any(
            isinstance(event, MessageSent) and event.message.id == message_id for event in events
        ):
            return True
        if self._has_ended or (events and isinstance(events[-1], RunFinished)):
            return False
        new = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._waiting.setdefault((run_id, message_id), new))

    def find_current_call(self, run_id: str) -> tuple[str, float] | None:
        events = self.recorded.get(run_id, [])
        ended = {event.call_id for event in events if isinstance(event, ToolCallFinished)}
        for event in events:
            if isinstance(event, ToolCallStarted) and event.call.id not in ended:
                return event.call.name, self._now() - event.at
        return None

    def end(self) -> None:
        self._has_ended = True
        self._end_requests()
        for run_id, _ in list(self._waiting):
            self._end_waiting(run_id)

    def _end_waiting(self, run_id: str) -> None:
        for key in [key for key in self._waiting if key[0] == run_id]:
            self._waiting.pop(key).set_result(False)

    def charge(self, charge: Charge) -> None:
        self._charged.charges += 1
        if charge.turns:
            self._add_turns(charge.turns)
            return
        self._charged.usage += charge.usage
        self._charged.usd += charge.usd or 0.0
        if charge.estimate != NO_USAGE:
            self._charged.estimate += charge.estimate
        self._charged.children += charge.children
        if charge.usage != NO_USAGE and self._admissions:
            self.meter.learn(charge.usage, charge.usd)
        self.meter.add_usage(charge.usage, charge.usd, charge.children, charge.estimate)

    def add_child(self) -> str:
        """Count a child that starts; return the reason if it may not, else ""."""
        try:
            self.meter.check_children()
        except BudgetExceeded as error:
            return str(error)
        self._charged.children += 1
        self.meter.add_children(1)
        return ""

    def refund(self) -> None:
        """Refund all charges: another process continues the run and charges its past again."""
        # The price is None if unknown.
        usage = _negate(self._charged.usage)
        self.meter.add_usage(
            usage, -self._charged.usd, -self._charged.children, _negate(self._charged.estimate)
        )
        self._add_turns(-self._charged.turns)
        self._end_requests(are_unsent=True)
        while self._paused_at:  # the process that asked for them cannot end them now
            self.set_paused(False)
        self._charged = _Charged()

    def _add_turns(self, count: int) -> None:
        self._charged.turns += count
        self.meter.add_turns(count)

    def admit(self, gate: RequestGate, request: RequestAdmission) -> Coroutine[Any, Any, Admission]:
        """Ask for a permit now; return an awaitable for it.

        `end_request` may come before it is awaited: both messages can arrive together.
        """
        applying = gate.admit(self.meter, request.plan, is_own=request.is_own)
        task = asyncio.create_task(applying)
        self._admissions[request.id] = task
        return self._wait_for_permit(request, task)

    async def _wait_for_permit(
        self, request: RequestAdmission, task: asyncio.Task[Permit | LimitState]
    ) -> Admission:
        outcome = await task
        if request.id in self._admissions:
            self._admissions[request.id] = outcome
        if isinstance(outcome, LimitState):
            return Admission(refusal=outcome)
        return Admission(max_tokens=outcome.max_tokens, cut_by=outcome.cut_by)

    def end_request(self, number: int, *, is_unsent: bool = False) -> None:
        """End a request, or abandon its admission.

        A request that the provider did not get costs no turn.
        """
        outcome = self._admissions.pop(number, None)
        if isinstance(outcome, asyncio.Task):
            if outcome.cancel() or outcome.cancelled():
                return
            permit = outcome.result()
            if isinstance(permit, Permit):
                permit.withdraw()
        elif isinstance(outcome, Permit) and is_unsent:
            outcome.withdraw()
        elif isinstance(outcome, Permit):
            self._charged.turns += outcome.turns
            outcome.end()

    def _end_requests(self, *, are_unsent: bool = False) -> None:
        for number in list(self._admissions):
            self.end_request(number, is_unsent=are_unsent)

    def learn_seconds(self, seconds: float) -> ParentMeterState:
        """Record how long an answer took; return the resulting state."""
        if self.meter.parent is not None:
            self.meter.parent.learn_seconds(seconds)
        return self.make_parent_meter_state()

    def make_parent_meter_state(self) -> ParentMeterState:
        time_above = self.meter.find_time_above()
        if not self.meter.has_shared_limits:
            return ParentMeterState(self.run_id, charges=self._charged.charges, time=time_above)
        shared: list[LimitState] = []
        left: dict[Limit, float] = {}
        ancestor = self.meter.parent
        if isinstance(ancestor, Meter):
            for limit in SHARED_LIMITS:
                amount = ancestor.compute_amount_left(limit)
                if amount is not None:
                    left[limit] = amount
        while isinstance(ancestor, Meter):
            shared.extend(ancestor.list_shared_limits())
            ancestor = ancestor.parent
        return ParentMeterState(self.run_id, tuple(shared), left, self._charged.charges, time_above)


def _negate(usage: Usage) -> Usage:
    return Usage(*(amount and -amount for amount in msgspec.structs.astuple(usage)))


_LOOK_SECONDS = 0.25
"""Longest time between checks of what a process has sent."""


class WorkerLost(Exception):
    """A worker process ended while executing a run, or could not execute it. The text says why.

    A run is not a suspect if other runs of the process are more likely the cause. The process hung
    if it was killed because it did not answer.
    """

    def __init__(self, reason: str, *, is_suspect: bool = True, has_hung: bool = False) -> None:
        super().__init__(reason)
        self.is_suspect = is_suspect
        self.has_hung = has_hung


class ProcessRuns:
    """The open runs that the session gave to one worker process."""

    def __init__(self) -> None:
        self._has_hung = False
        self._runs: dict[str, AssignedRun] = {}
        self._stopping: set[str] = set()
        self._becomes_idle: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, assigned: AssignedRun, connection: WorkerConnection) -> None:
        """Add a run. While there are runs, a process that does not answer is killed."""
        self._runs[assigned.run_id] = assigned
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(connection))

    def remove(self, assigned: AssignedRun) -> None:
        del self._runs[assigned.run_id]
        if not self._runs:
            self._stopping.clear()
            if self._becomes_idle and not self._becomes_idle.done():
                self._becomes_idle.set_result(None)

    def __getitem__(self, run_id: str) -> AssignedRun:
        return self._runs[run_id]

    def get(self, run_id: str) -> AssignedRun | None:
        return self._runs.get(run_id)

    def find(self, run_id: str) -> AssignedRun | None:
        """Find the run with this id, or the one above it."""
        while run_id and run_id not in self._runs:
            run_id = find_parent_id(run_id)
        return self._runs.get(run_id)

    def list_ids(self) -> tuple[tuple[str, ...], int]:
        """List the ids of working runs, with those below them; also return how many wait."""
        live = [run_id for assigned in self._runs.values() for run_id in assigned.live]
        waiting = sum(run_id not in assigned.live for run_id, assigned in self._runs.items())
        return tuple(sorted(live, key=make_sort_key)), waiting

    async def wait_until_idle(self) -> None:
        if self._runs:
            self._becomes_idle = asyncio.get_running_loop().create_future()
            await self._becomes_idle

    def expect_end(self, run_id: str) -> None:
        """Note that a run was told to stop: until it ends, the process must answer sooner."""
        self._stopping.add(run_id)

    def lose(self, reason: str) -> None:
        """Tell the runs that their process is lost.

        Runs with an open call are suspects; if there are none, all runs are.
        """
        runs = list(self._runs.values())
        suspects = [run for run in runs if any(map(run.find_current_call, run.live))] or runs
        for run in runs:
            lost = WorkerLost(reason, is_suspect=run in suspects, has_hung=self._has_hung)
            run.on_outcome(lost)

    def close(self) -> None:
        """Stop watching a process that is lost or closed."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, connection: WorkerConnection) -> None:
        """Kill the process if it stays silent for too long.

        Checks are counted, not seconds: the process is not to blame while this one is stopped or
        the machine is asleep.
        """
        arrivals, silence, able = connection.arrivals, 0.0, 0.0
        activity = connection.read_activity()
        while self._runs:
            limits = connection.answer_limits
            look = _LOOK_SECONDS if limits is None else min(_LOOK_SECONDS, limits.silence / 4)
            await asyncio.sleep(look)
            before, activity = activity, connection.read_activity()
            if limits is None or connection.arrivals != arrivals:
                arrivals, silence, able = connection.arrivals, 0.0, 0.0
                continue
            silence += look
            able += _compute_able_seconds(look, before, activity)
            longest = limits.silence if arrivals > 0 else limits.start
            if silence >= longest or (able >= limits.stop and self._must_end_soon()):
                self._has_hung = True
                connection.kill(f"it did not answer for {silence:g} s")

    def _must_end_soon(self) -> bool:
        is_stopping = any(map(self._is_stopping, self._stopping))
        return is_stopping or any(run.is_overdue for run in self._runs.values())

    def _is_stopping(self, run_id: str) -> bool:
        assigned = self.find(run_id)
        return assigned is not None and (run_id in self._runs or run_id in assigned.live)


def _compute_able_seconds(look: float, before: Activity | None, after: Activity | None) -> float:
    """Compute for how much of a check interval the process could have answered.

    A process that wants a processor could do so only while it had one. One that sleeps, is stopped,
    or waits for a disk had the whole time.
    """
    if before is None or after is None or not after.is_runnable:
        return look
    return min(look, max(0.0, after.cpu_seconds - before.cpu_seconds))
