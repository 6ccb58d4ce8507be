"""State of a run in a worker process, kept by the session's process."""

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
from ...._core.runs import Brief, Report
from ...._engine.meters.account import Admission, Permit
from ...._engine.meters.meter import Meter
from ...._engine.meters.request_gate import RequestGate
from ....errors import BudgetExceeded
from .messages import Charge, ParentMeterState, RequestAdmission


@dataclass(slots=True)
class _Charged:
    """What one process has charged for a run and those below it. `charges`: how many times."""

    usage: Usage = NO_USAGE
    usd: float = 0.0
    estimate: Usage = NO_USAGE
    children: int = 0
    turns: int = 0
    charges: int = 0


class AssignedRun:
    """State of a run in a worker process, kept by the session's process.

    Arguments:
        on_outcome: called with the report of the run, or with the exception that ended it, or
            WorkerLost.
        now: the clock of the session, by which its events have their times.

    Attributes:
        recorded: stored events of the run and of the runs below it, by run id.
        live: ids of these runs that have started and not ended.
        on_begin: called when the run has started, or continues in another process.
        sent_brief: the brief as the process has it.
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
        # A task takes a kilobyte: after its end only its outcome is kept.
        self._admissions: dict[int, asyncio.Task[Permit | LimitState] | Permit | LimitState] = {}
        self._waiting: dict[tuple[str, str], asyncio.Future[bool]] = {}
        self._has_ended = False
        self._now = now
        self._started_at = time.monotonic()
        self._paused_at: list[float] = []

    @property
    def is_overdue(self) -> bool:
        """True if the time limit of the run, or that of a run above it, is over.

        The process of the run enforces the limit. It cannot while it hangs.
        """
        if self._paused_at:
            return False
        limit = self.meter.budget.seconds
        if limit is not None and time.monotonic() - self._started_at > limit:
            return True
        above = self.meter.find_time_above()
        return above is not None and above.seconds <= 0

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clocks of the run and of its ancestors; calls nest."""
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
        """Id of the run."""
        return self.brief.run_id

    def add(self, events: Sequence[StoredEvent]) -> None:
        """Keep stored events."""
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
        """Return the former folders of its recorded runs, and of the run that it continues."""
        runs = (*self.recorded, self.brief.continues)
        return {run: folders[run] for run in runs if run in folders}

    def count_turns(self) -> int:
        """Return the number of recorded turns of the run that have finished."""
        events = self.recorded.get(self.run_id, ())
        return sum(isinstance(event, TurnFinished) for event in events)

    async def wait_until_stored(self, run_id: str, message_id: str) -> bool:
        """Wait until the journal has a message; return False if its run ends without it."""
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
        """Return the tool and the seconds of the call of a run that works longest."""
        events = self.recorded.get(run_id, [])
        ended = {event.call_id for event in events if isinstance(event, ToolCallFinished)}
        for event in events:
            if isinstance(event, ToolCallStarted) and event.call.id not in ended:
                return event.call.name, self._now() - event.at
        return None

    def end(self) -> None:
        """Mark the run and the runs below it as ended."""
        self._has_ended = True
        self._end_requests()
        for run_id, _ in list(self._waiting):
            self._end_waiting(run_id)

    def _end_waiting(self, run_id: str) -> None:
        for key in [key for key in self._waiting if key[0] == run_id]:
            self._waiting.pop(key).set_result(False)

    def charge(self, charge: Charge) -> None:
        """Charge the meter of the run and those of its ancestors."""
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
        """Count a child that starts; return the reason why it may not, or ""."""
        try:
            self.meter.check_children()
        except BudgetExceeded as error:
            return str(error)
        self._charged.children += 1
        self.meter.add_children(1)
        return ""

    def refund(self) -> None:
        """Take back all charges: another process continues the run and charges its past again."""
        # The price may be None: then it is not known.
        usage = _negate(self._charged.usage)
        self.meter.add_usage(
            usage, -self._charged.usd, -self._charged.children, _negate(self._charged.estimate)
        )
        self._add_turns(-self._charged.turns)
        self._end_requests(are_unsent=True)
        while self._paused_at:  # the process that asked for the pauses cannot end them
            self.set_paused(False)
        self._charged = _Charged()

    def _add_turns(self, count: int) -> None:
        self._charged.turns += count
        self.meter.add_turns(count)

    def admit(self, gate: RequestGate, request: RequestAdmission) -> Coroutine[Any, Any, Admission]:
        """Ask for a permit now, and return the wait for it.

        `end_request` may follow before the wait begins: both messages can arrive together.
        """
        applying = gate.admit(self.meter, request.plan, is_own=request.is_own)
        task = asyncio.create_task(applying)
        self._admissions[request.id] = task
        return self._wait_for_permit(request, task)

    async def _wait_for_permit(
        self, request: RequestAdmission, task: asyncio.Task[Permit | LimitState]
    ) -> Admission:
        """Wait until the limits of the run and its ancestors allow a request."""
        outcome = await task
        if request.id in self._admissions:
            self._admissions[request.id] = outcome
        if isinstance(outcome, LimitState):
            return Admission(refusal=outcome)
        return Admission(max_tokens=outcome.max_tokens, cut_by=outcome.cut_by)

    def end_request(self, number: int, *, is_unsent: bool = False) -> None:
        """End a request, or give up its admission.

        Arguments:
            is_unsent: true if the provider did not get the request: it costs no turn.
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
        """Note how long an answer took, and return the state that follows."""
        if self.meter.parent is not None:
            self.meter.parent.learn_seconds(seconds)
        return self.make_parent_meter_state()

    def make_parent_meter_state(self) -> ParentMeterState:
        """Return the limits and unspent amounts of the ancestors of the run."""
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
