"""The meters of a session's running runs, and the gate that admits their requests."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Iterator
from functools import partial
from operator import attrgetter

from msgspec import Struct

from ..._core.budgets import Budget, Grant, Limit, LimitState
from .account import Account, Permit, RequestPlan
from .meter import Meter, ParentMeter
from .pool import EXPECTED_ANSWER, IDLE_SECONDS, LONGEST_SUMMARY, Forecast, Pool

SHARES = 32
"""What is left of a limit is divided by at least this; an answer may be as long as one share.

With many runs under the limit, there are two shares for each.
"""

SHORTEST_ANSWER = 512  # tokens under a shared limit, before any answer is known


class RequestGate:
    """Admits the model requests of all runs in a process.

    A request starts once what is left of every limit covers it, together with all open requests
    and the last turns of all runs that have begun. So parallel runs exceed a limit by one answer at
    most, and a run that reaches it can still give its summary. Summaries go first, then runs that
    have begun, oldest first, then new ones; `Pool` decides when those begin.

    A request waits only while other requests are open, or while runs that precede it are working.
    A run that waits for others precedes none, so no two wait for each other.
    """

    def __init__(self) -> None:
        self._waiting: list[_WaitingRequest] = []
        self._next_look: asyncio.TimerHandle | None = None

    async def reserve(self, meter: Meter, plan: RequestPlan) -> LimitState | None:
        """Wait until the limits allow a run's request, and count its turn.

        Returns the limit that refuses the request, if one does.
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
        """Wait until this process's meters allow a request by a run, or by one below it."""
        request = _WaitingRequest(self, meter, plan, is_own)
        blocked = {
            each
            for waiting in self._waiting
            if waiting.rank < request.rank
            for each in waiting.blocked_by
        }
        decision = request.decide(blocked)
        if decision is not None:
            return decision
        insort(self._waiting, request, key=attrgetter("rank"))
        meter.member.is_asking = True
        # What others are waiting for is not always known, so look again from time to time.
        self._look_again_later()
        try:
            return await request.decision
        except asyncio.CancelledError:
            self._withdraw(request)
            raise
        finally:
            meter.member.is_asking = False

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def admit_waiting(self) -> None:
        """Decide on the waiting requests; those that have to wait longer keep their places."""
        blocked: set[Meter] = set()
        for request in list(self._waiting):
            if request.decision.done():  # cancelled
                continue
            decision = request.decide(blocked)
            if decision is not None:
                self._waiting.remove(request)
                request.decision.set_result(decision)

    def _look_again_later(self) -> None:
        if self._next_look is None:
            loop = asyncio.get_running_loop()
            self._next_look = loop.call_later(IDLE_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._next_look = None
        self.admit_waiting()
        if self._waiting:
            self._look_again_later()

    def _withdraw(self, request: _WaitingRequest) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self.admit_waiting()
        elif not request.decision.cancelled():
            permit = request.decision.result()
            if isinstance(permit, Permit):
                permit.withdraw()


class _Room(Struct):
    """Room for a request in one account.

    `grant` is what the account has granted the run, None if the run shares its limit.
    """

    meter: Meter
    account: Account
    grant: float | None

    @property
    def pool(self) -> Pool:
        assert self.meter.pool is not None
        return self.meter.pool


class _WaitingRequest:
    """A request without a permit. Requests with a lower rank go first.

    `blocked_by` are the meters whose runs it waits for.
    """

    def __init__(self, gate: RequestGate, meter: Meter, plan: RequestPlan, is_own: bool) -> None:
        self._gate = gate
        self.blocked_by: list[Meter] = []
        self.decision: asyncio.Future[Permit | LimitState] = asyncio.Future()
        self._meter = meter
        self._plan = plan
        self._is_own = is_own
        self._is_first = meter.is_new and not plan.is_summary
        self.rank = (0 if plan.is_summary else 1 + self._is_first, meter.member.order)
        # Limits in another process are checked last: the turn counts once they allow it as well.
        is_last_check = meter.find_remote_limits() is None
        self._counts_turn = is_own and not plan.is_summary and is_last_check
        self._tokens = plan.max_answer
        self._cut_by: LimitState | None = None

    def decide(self, blocked: set[Meter]) -> Permit | LimitState | None:
        """Return a permit, or the limit that refuses the request; None if it must wait.

        `blocked` are the meters whose runs earlier requests wait for; this request adds its own.
        """
        # A last turn is needed just when a limit is used up, so it only has to fit.
        is_summary = self._plan.is_summary
        if not is_summary and (exceeded := self._meter.find_shared_limit(1.0)):
            return exceeded
        self._tokens = self._plan.max_answer
        self._cut_by = None
        self.blocked_by = []
        rooms = list(self._list_rooms())
        if not self._plan.is_summary:
            shared = [room.meter for room in rooms if room.grant is None]
            self.blocked_by = [meter for meter in shared if meter in blocked]
            if self.blocked_by:
                return None
        forecasts = self._make_forecasts(rooms)
        for room in rooms:
            if self._fit(room, forecasts.get(room.meter)):
                continue
            if not self._may_wait(room):
                return room.account.state
            self.blocked_by.append(room.meter)
        if self.blocked_by:
            blocked.update(self.blocked_by)
            return None
        return self._make_permit(rooms, forecasts)

    def _list_rooms(self) -> Iterator[_Room]:
        grants: dict[Limit, float] = {}
        for meter in self._meter.walk_up():
            for limit, account in meter.accounts.items():
                yield _Room(meter, account, grants.get(limit))
                if (grant := meter.get_grant(limit)) is not None:
                    grants[limit] = grant

    def _make_forecasts(self, rooms: list[_Room]) -> dict[Meter, Forecast]:
        """Forecast what the run will spend, for each of its pools."""
        limits: dict[Meter, list[Limit]] = {}
        for room in rooms:
            if room.grant is None:
                limits.setdefault(room.meter, []).append(room.account.limit)
        forecasts: dict[Meter, Forecast] = {}
        for meter, shared in limits.items():
            assert meter.pool is not None
            ratio = meter.pool.size_ratio if self._is_first else 1.0
            forecasts[meter] = meter.pool.forecast(self._meter, self._plan, shared, ratio)
        return forecasts

    def _fit(self, room: _Room, forecast: Forecast | None) -> bool:
        """Return whether the request, perhaps with a cut answer, fits into the rest of a limit."""
        account, limit = room.account, room.account.limit
        plan = self._plan
        price = plan.prices.get(limit, 0)
        sent = self._estimate_sent(room)
        if room.grant is not None or forecast is None:
            free = account.left + (room.grant or 0)
            return self._cut(account, free - plan.minimum.get(limit, 0), plan.min_answer)
        held = account.requested + room.pool.sum_endings(limit, self._meter)
        free = account.left - held - forecast.ending.get(limit, 0)
        if plan.is_summary:
            return self._fit_summary(room, free)
        shortest = self._choose_shortest(room.pool)
        is_covered = room.pool.covers(limit, self._meter, forecast, account.left)
        if is_covered:
            longest = max(shortest, self._compute_share(room))
            if sent + price * shortest <= free:
                # One answer may start many children, so a child's first request is hardly alone.
                is_many = self._is_first and self._plan.is_child
                is_alone = not is_many and not self._has_others(room)
                return self._cut(account, free - sent, shortest, 0 if is_alone else longest)
        if self._may_wait(room):
            return False
        # Nothing else can become free: the request may use all that is not held for last turns.
        minimum = min(sent, plan.minimum.get(limit, 0))
        return self._cut(account, free - minimum, plan.min_answer)

    def _estimate_sent(self, room: _Room) -> float:
        """Estimate the most the request can cost without its answer."""
        sent = self._plan.maximum.get(room.account.limit, 0)
        return sent * room.pool.size_ratio if self._is_first else sent

    def _fit_summary(self, room: _Room, free: float) -> bool:
        """Return whether a last turn fits, counting the amount held for it as free."""
        account, limit = room.account, room.account.limit
        plan = self._plan
        sent = self._meter.member.expect_sent(limit, plan.maximum.get(limit, 0), plan.size)
        longest = max(LONGEST_SUMMARY, self._compute_share(room))
        if self._cut(account, free - sent, plan.min_answer, longest):
            return True
        if account.is_busy:
            return False
        # Only the summary of the run that has the limit may exceed it. Runs below must leave
        # something for that, whatever their own summaries cost.
        is_owner = not room.meter.is_run or (self._is_own and room.meter is self._meter)
        needed = plan.minimum.get(limit, 0) if is_owner else sent
        if self._cut(account, account.left - needed, plan.min_answer):
            return True
        if account.left < 0 or not is_owner:
            return False
        self._tokens = min(self._tokens, plan.min_answer)
        return True

    def _cut(self, account: Account, free: float, shortest: int, longest: int = 0) -> bool:
        """Cut the answer to the free amount. Return False if that is below the shortest.

        The answer gets at most `longest` tokens even if more are free; 0 means all.
        """
        price = self._plan.prices.get(account.limit, 0)
        if not price:
            return free > 0 or (free == 0 and self._plan.is_summary)
        tokens = int(free / price)
        if tokens < min(shortest, self._plan.max_answer):
            return False
        if longest:
            tokens = min(tokens, longest)
        if tokens < self._tokens:
            self._tokens = tokens
            self._cut_by = account.state
        return True

    def _compute_share(self, room: _Room) -> int:
        """Return the tokens an answer may have if all others get as many."""
        price = self._plan.prices.get(room.account.limit, 0)
        parts = max(SHARES, 2 * (len(room.pool.runs) + self._gate.waiting_count))
        return int(room.account.unspent / parts / price) if price else 0

    def _choose_shortest(self, pool: Pool) -> int:
        """Return the tokens the answer needs at least: twice the longest answer so far."""
        known = 2 * pool.longest_answer or SHORTEST_ANSWER
        return min(self._plan.max_answer, max(known, self._plan.min_answer))

    def _has_others(self, room: _Room) -> bool:
        """Return whether runs other than those above are working under the limit."""
        above = set(self._meter.walk_up())
        return any(run not in above for run in room.pool.runs)

    def _may_wait(self, room: _Room) -> bool:
        """Return whether amounts may become free without anyone waiting for this run."""
        if room.grant is not None:
            return False
        if room.account.is_busy:
            return True
        if self._plan.is_summary:
            return False
        return room.pool.has_earlier(self._meter)

    def _make_permit(self, rooms: list[_Room], forecasts: dict[Meter, Forecast]) -> Permit:
        take_back = None
        if self._counts_turn:
            self._meter.add_turns(1)
            take_back = partial(self._meter.add_turns, -1)
        is_counted = any(self._plan.prices.get(room.account.limit) for room in rooms)
        prices = self._plan.prices
        permit = Permit(
            [
                (
                    room.account,
                    self._estimate_sent(room) + prices.get(room.account.limit, 0) * self._tokens,
                )
                for room in rooms
                if room.grant is None
            ],
            self._gate.admit_waiting,
            self._tokens if is_counted else None,
            self._cut_by,
            turns=int(self._counts_turn),
            take_back=take_back,
        )
        # For a run of another process, only its requests are held.
        for meter, forecast in forecasts.items() if self._is_own else ():
            assert meter.pool is not None
            meter.pool.set_forecast(self._meter, forecast)
            permit.on_end.insert(0, partial(meter.pool.end_request, self._meter))
            if self._is_first and isinstance(parent := self._meter.parent, Meter):
                meter.pool.expect_report(parent, self._plan.compute_sent(EXPECTED_ANSWER))
        if forecasts:
            self._meter.member.on_free = self._gate.admit_waiting
        return permit


class Meters:
    """The meters of a session's running runs, by run id.

    Attributes:
        charged: ids of the children whose cost their parents have counted or will count, so that a
            parent that ends early neither misses nor repeats what an earlier process spent.
    """

    def __init__(self) -> None:
        self.gate = RequestGate()
        self.charged: set[str] = set()
        self._meters: dict[str, Meter] = {}

    def open(self, run_id: str, budget: Budget, parent: Meter | ParentMeter | None = None) -> Grant:
        """Open a meter for a run without a parent in this process.

        `parent` also pays for the run: the session, or ancestors in another process.
        """
        self._meters[run_id] = Meter(budget, parent)
        self.charged.add(run_id)
        return Grant(run_id, budget)

    async def allocate(
        self, parent: Meter, run_id: str, requested: Budget, seconds: float
    ) -> Grant:
        """Open a meter for a child, and count it in other processes' meters; see `Meter.allocate`.

        Raises BudgetExceeded, naming the limit that does not suffice.
        """
        meter = parent.allocate(requested, seconds)
        self.charged.add(run_id)
        self._meters[run_id] = meter
        grant = Grant(run_id, meter.budget)
        if remote := parent.find_remote_parent():
            try:
                await remote.add_child()
            except BaseException:
                parent.add_children(-1)
                self.close(grant)
                raise
        return grant

    def reopen(self, parent: Meter, run_id: str, budget: Budget) -> Grant:
        """Open a meter, with its recorded budget, for a child started by an earlier process."""
        self._meters[run_id] = parent.reopen_child(budget)
        self.charged.add(run_id)
        return Grant(run_id, budget)

    def get(self, grant: Grant) -> Meter:
        return self._meters[grant.run_id]

    def withdraw(self, grant: Grant) -> None:
        """Remove the meter of a child that did not begin, and uncount it."""
        self.get(grant).withdraw()
        self.close(grant)

    def close(self, grant: Grant) -> Meter:
        """Remove and return an ended run's meter, and release what was reserved for it."""
        meter = self._meters.pop(grant.run_id)
        meter.release()
        return meter
