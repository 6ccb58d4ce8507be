"""RequestGate: starts a model request when the limits allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ..._core.budgets import Limit, LimitState
from .meter import Meter
from .request_plan import Permit, RequestPlan


class RequestGate:
    """Gate for the model requests of all runs of a process.

    A request that could pass a limit together with the requests under way waits until one of them
    ends. Where no other is under way, the answer is cut to what is left. So parallel runs pass a
    limit by one answer at most. Waiting requests start in their order. Each waits only for
    requests under way, so no two wait for each other.
    """

    def __init__(self) -> None:
        self._waiting: list[_WaitingRequest] = []

    async def reserve(self, meter: Meter, plan: RequestPlan) -> LimitState | None:
        """Wait until the limits allow a request of a run, and count its turn.

        Return the limit that refuses the request.
        """
        permit = await self.admit(meter, plan)
        if isinstance(permit, LimitState):
            return permit
        meter.permit = permit
        remote = meter.find_remote_limits()
        if remote is None:
            return None
        try:
            admission = await remote.admit(plan, is_own=meter.parent is remote)
        except BaseException:
            meter.end_request()
            raise
        if admission.refusal is not None:
            meter.end_request()
            return admission.refusal
        if not plan.is_summary:
            meter.turns += 1
        permit.on_end.insert(0, partial(remote.end_request, admission.number))
        permit.cut_to(admission)
        return None

    async def admit(
        self, meter: Meter, plan: RequestPlan, *, is_own: bool = True
    ) -> Permit | LimitState:
        """Wait until the meters of this process allow a request.

        Arguments:
            is_own: false for a request of a run below the run of the meter.
        """
        request = _WaitingRequest(meter, plan, is_own)
        blocked = {each for waiting in self._waiting for each in waiting.blocked_by}
        decision = request.decide(self, blocked)
        if decision is not None:
            return decision
        self._waiting.append(request)
        try:
            return await request.decision
        except asyncio.CancelledError:
            self._withdraw(request)
            raise

    def admit_waiting(self) -> None:
        """Decide on the waiting requests; those that must wait longer keep their order."""
        blocked: set[Meter] = set()
        for request in list(self._waiting):
            if request.decision.done():  # cancelled
                continue
            decision = request.decide(self, blocked)
            if decision is not None:
                self._waiting.remove(request)
                request.decision.set_result(decision)

    def _withdraw(self, request: _WaitingRequest) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self.admit_waiting()
        elif not request.decision.cancelled():
            permit = request.decision.result()
            if isinstance(permit, Permit):
                permit.withdraw()


class _WaitingRequest:
    """A request of a run that has no permit yet.

    Attributes:
        blocked_by: meters with requests under way that this one waits for.
    """

    def __init__(self, meter: Meter, plan: RequestPlan, is_own: bool) -> None:
        self.blocked_by: list[Meter] = []
        self.decision: asyncio.Future[Permit | LimitState] = asyncio.Future()
        self._meter = meter
        self._plan = plan
        self._is_own = is_own
        # Limits in another process are checked last: a turn counts when they allow it, too.
        is_last_check = meter.find_remote_limits() is None
        self._counts_turn = is_own and not plan.is_summary and is_last_check
        self._tokens = plan.max_answer
        self._cut_by: LimitState | None = None

    def decide(self, gate: RequestGate, blocked: set[Meter]) -> Permit | LimitState | None:
        """Return a permit, or the limit that refuses the request; None if it must wait.

        Arguments:
            blocked: meters that earlier requests wait for; those of this one are added.
        """
        plan = self._plan
        if exceeded := self._find_used_limit():
            return exceeded
        self._tokens = plan.max_answer
        self._cut_by = None
        self.blocked_by = []
        limited_meters: list[Meter] = []
        reserved: dict[Limit, float] = {}
        for meter in self._meter.walk_up():
            for limit, maximum in meter.shared_limits:
                left = meter.compute_amount_for_request(limit, reserved.get(limit, 0))
                if self._is_refused(meter, limit, left):
                    return LimitState(limit, maximum, meter.compute_amount_spent(limit))
                if not self._fit(meter, limit, left, is_busy=meter in blocked):
                    self.blocked_by.append(meter)
                reserved[limit] = meter.compute_amount_reserved(limit)
            if meter.shared_limits:
                limited_meters.append(meter)
        if self.blocked_by:
            blocked.update(self.blocked_by)
            return None
        take_back = self._count_request()
        limits = {limit for meter in limited_meters for limit, _ in meter.shared_limits}
        is_counted = any(plan.prices.get(limit) for limit in limits)
        max_tokens = self._tokens if is_counted else None
        amounts = plan.compute_maximum(self._tokens)
        held_in = [meter.requests for meter in limited_meters]
        return Permit(
            held_in,
            amounts,
            gate.admit_waiting,
            max_tokens,
            self._cut_by,
            turns=int(self._counts_turn),
            take_back=take_back,
        )

    def _find_used_limit(self) -> LimitState | None:
        """Return a limit that is used up, without regard to the size of the request."""
        if not self._plan.is_summary:
            return self._meter.find_shared_limit(1.0)
        states = (meter.find_summary_limit() for meter in self._meter.walk_up())
        return next(filter(None, states), None)

    def _count_request(self) -> Callable[[], None] | None:
        """Count a turn or a summary. Return a function that takes it back, None for neither."""
        if self._counts_turn:
            self._meter.add_turns(1)
            return partial(self._meter.add_turns, -1)
        if not self._plan.is_summary:
            return None
        for meter in self._meter.walk_up():
            meter.count_summary()
        return partial(_take_back_summary, self._meter)

    def _is_refused(self, meter: Meter, limit: Limit, left: float) -> bool:
        """Return whether a limit ends the run, or does not allow its summary."""
        plan = self._plan
        minimum = plan.minimum.get(limit, 0)
        if not plan.is_summary:
            return left <= minimum
        if minimum + plan.prices.get(limit, 0) * plan.min_answer <= left:
            return False
        # One summary may pass a limit: that of the run whose limit it is.
        is_owner = not meter.is_run or (self._is_own and meter is self._meter)
        return left < 0 or not is_owner

    def _fit(self, meter: Meter, limit: Limit, left: float, *, is_busy: bool) -> bool:
        """Cut the answer to a limit. Return False if requests under way leave too little."""
        plan = self._plan
        price = plan.prices.get(limit, 0)
        free = left - meter.compute_amount_held(limit)
        is_busy = is_busy or bool(meter.requests)
        used = (plan.maximum if is_busy else plan.minimum).get(limit, 0)
        if is_busy:
            tokens = plan.min_answer if plan.is_summary else self._tokens
            if used + price * tokens > free:
                return False
        if price and (free - used) / price < self._tokens:
            self._tokens = max(plan.min_answer, int((free - used) / price))
            maximum = getattr(meter.budget, limit)
            self._cut_by = LimitState(limit, maximum, meter.compute_amount_spent(limit))
        return True


def _take_back_summary(run: Meter) -> None:
    """Have the meter of a run, and those above it, forget its last summary."""
    for meter in run.walk_up():
        meter.take_back_summary()
