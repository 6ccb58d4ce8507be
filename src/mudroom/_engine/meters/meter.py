"""Meter: compares what a run spends with the limits of the run and its ancestors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ..._core.budgets import SHARED_LIMITS, Budget, Limit, LimitState, choose_smaller, limit_budget
from ..._core.messages import NO_USAGE, Usage
from .request_plan import Admission, Permit, RequestPlan

WARNING_FRACTION = 0.9
"""Used fraction of a limit at which a note warns the run."""
NEAR_LIMIT = (
    "You have used 90 % of your {limit}. Come to an end: finish what matters most, then report."
)


class ParentMeter(Protocol):
    """The meters above a run, where they are in another process."""

    def add_child_turns(self, count: int) -> None:
        """Count turns of a run directly below."""
        ...

    def add_usage(
        self, usage: Usage, usd: float | None, children: int = 0, estimate: Usage = NO_USAGE
    ) -> None:
        """Add what a descendant spent; see `Meter.add_usage`."""
        ...

    def find_shared_limit(self, fraction: float) -> LimitState | None:
        """Return the first shared limit, here or above, of which this fraction is used."""
        ...

    @property
    def has_shared_limits(self) -> bool:
        """True if there are shared limits, here or above; it does not change while runs work."""
        ...

    def compute_amount_left(self, limit: Limit) -> float | None:
        """Return the unspent amount of a shared limit, here and above; None without a limit."""
        ...

    async def add_child(self) -> None:
        """Count a child that starts. Raise ValueError if no further one may start."""
        ...

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clocks, here and above."""
        ...

    async def admit(self, plan: RequestPlan, *, is_own: bool) -> Admission:
        """Wait until the limits above allow a request, and count its turn; see `RequestGate`.

        Arguments:
            is_own: true for a request of the run directly below.
        """
        ...

    def end_request(self, number: int) -> None:
        """End a request. `number`: that of its admission."""
        ...


class Meter:
    """Tokens, money, turns and children of one run.

    Tokens, money and children are added to every ancestor, too, so a limit of an ancestor holds
    for all runs below it. The amounts granted to a child stay reserved in its ancestors until
    `release`.

    Attributes:
        reserved: unspent amounts of the runs below that have limits of their own.
        requests: amounts that each request under way holds, of this run and the runs below it.
        estimate: tokens and price of answers that were cut off, of this run and the runs below it.
        permit: the last request of this run, if a limit holds for it.
        is_run: false for the meter of a session.
    """

    __slots__ = (
        "_is_reserved",
        "budget",
        "children",
        "descendant_usage",
        "estimate",
        "has_warned",
        "is_price_known",
        "on_pause",
        "parent",
        "permit",
        "requests",
        "reserved",
        "shared_limits",
        "turns",
        "usage",
        "usd",
    )

    is_run = True

    def __init__(self, budget: Budget, parent: Meter | ParentMeter | None = None) -> None:
        self.parent = parent
        self.reserved: dict[Limit, float] = {}
        self.requests: list[Mapping[Limit, float]] = []
        self.permit: Permit | None = None
        self.turns: int = 0
        self.children = 0
        self.usage = NO_USAGE
        self.descendant_usage = NO_USAGE
        self.estimate = NO_USAGE
        self.usd = 0.0
        self.is_price_known = True
        self.on_pause: Callable[[bool], None] | None = None
        self.has_warned = False
        self._is_reserved = False
        self.shared_limits: tuple[tuple[Limit, float], ...] = ()
        self.set_limits(budget)

    def set_limits(self, budget: Budget) -> None:
        """Replace the limits of the run."""
        self._change_reserved(-1)
        limits = ((limit, getattr(budget, limit)) for limit in SHARED_LIMITS)
        self.budget = budget
        self.shared_limits = tuple(
            (limit, maximum) for limit, maximum in limits if maximum is not None
        )
        self._change_reserved(1)

    @property
    def has_shared_limits(self) -> bool:
        """True if a limit, here or above, holds for the runs below it, too."""
        if self.shared_limits or self.parent is None:
            return bool(self.shared_limits)
        return self.parent.has_shared_limits

    def allocate(self, requested: Budget, seconds: float = 0.0) -> Meter:
        """Return a meter for a child and reserve the amounts that it requests.

        It counts in the meters of this process; see `Meters.allocate`.

        Arguments:
            seconds: age of this run.

        Raises ValueError that names the limit that does not suffice.
        """
        self.check_children()
        if self.has_shared_limits:
            for limit in SHARED_LIMITS:
                self._check_amount(limit, getattr(requested, limit))
        self.add_children(1)
        return self._open_child(self._limit_child_budget(requested, seconds))

    def reopen_child(self, budget: Budget) -> Meter:
        """Return a meter for a child with this budget, as its record has it; nothing is checked."""
        self.add_usage(Usage(), 0.0, children=1)
        return self._open_child(budget)

    def _open_child(self, budget: Budget) -> Meter:
        child = Meter(budget, self)
        child._is_reserved = True
        child._change_reserved(1)
        return child

    def compute_amount_held(self, limit: Limit) -> float:
        """Return what the requests under way hold of a limit."""
        return sum(amounts.get(limit, 0) for amounts in self.requests)

    def end_request(self) -> None:
        """End the request of this run that is under way; nothing if there is none."""
        if self.permit is not None:
            self.permit.end()

    def walk_up(self) -> Iterator[Meter]:
        """Yield this meter and those above it in this process."""
        meter: Meter | ParentMeter | None = self
        while isinstance(meter, Meter):
            yield meter
            meter = meter.parent

    def find_remote_parent(self) -> ParentMeter | None:
        """Return the meters above in another process, None if there are none."""
        *_, top = self.walk_up()
        return None if isinstance(top.parent, Meter) else top.parent

    def find_remote_limits(self) -> ParentMeter | None:
        """Return the meters above in another process, None if they have no limits."""
        remote = self.find_remote_parent()
        return remote if remote is not None and remote.has_shared_limits else None

    def release(self) -> None:
        """End the reservation of this run."""
        self._change_reserved(-1)
        self._is_reserved = False
        self.on_pause = None  # no reference cycle: the memory of the run is free at once

    def _change_reserved(self, sign: int) -> None:
        """Reserve the unspent amounts of this run (sign 1), or release them (sign -1).

        An ancestor with a limit of its own has reserved that in the meters above it already.
        """
        if not self._is_reserved or not self.shared_limits:
            return
        _, *ancestors = self.walk_up()
        for limit, _ in self.shared_limits:
            amount = sign * self.compute_amount_reserved(limit)
            for meter in ancestors:
                meter.reserved[limit] = meter.reserved.get(limit, 0) + amount
                if getattr(meter.budget, limit) is not None:
                    break

    def compute_amount_reserved(self, limit: Limit) -> float:
        """Return what the ancestors of this run have reserved of their limit for it."""
        maximum = getattr(self.budget, limit)
        if maximum is None or not self._is_reserved:
            return 0.0
        return max(0, maximum - self.compute_amount_spent(limit))

    def _check_amount(self, limit: Limit, requested: float | None) -> None:
        left = self.compute_amount_left(limit)
        if left is None:
            return
        if left <= 0 or (requested is not None and requested > left):
            amount = "some" if requested is None else requested
            raise ValueError(f"{limit}: {amount} requested, {max(left, 0):g} left")

    def _limit_child_budget(self, requested: Budget, seconds: float) -> Budget:
        own = self.budget
        time_left = None if own.seconds is None else max(0.0, own.seconds - seconds)
        depth_left = None if own.depth is None else max(0, own.depth - 1)
        return limit_budget(requested, time_left, depth_left)

    def add_turns(self, count: int) -> None:
        """Count turns of this run, here and in the meter directly above."""
        self.turns += count
        if self.parent is not None:
            self.parent.add_child_turns(count)

    def add_child_turns(self, count: int) -> None:
        """Do nothing: only a session counts the turns of the runs below."""

    def charge(self, usage: Usage, usd: float | None = 0.0, estimate: Usage = NO_USAGE) -> None:
        """Add tokens and money of this run, here and to every ancestor; see `add_usage`."""
        if self.shared_limits:
            self._change_reserved(-1)
        self.usage += usage
        self._add_costs(usd, estimate)
        if self.shared_limits:
            self._change_reserved(1)
        if self.parent is not None:
            self.parent.add_usage(usage, usd, 0, estimate)

    def add_usage(
        self, usage: Usage, usd: float | None, children: int = 0, estimate: Usage = NO_USAGE
    ) -> None:
        """Add what descendants spent, here and to every ancestor.

        Arguments:
            usd: US dollars, None if the price is unknown.
            estimate: tokens and price of answers that were cut off.
        """
        if self.shared_limits:
            self._change_reserved(-1)
        self.descendant_usage += usage
        self.children += children
        self._add_costs(usd, estimate)
        if self.shared_limits:
            self._change_reserved(1)
        if self.parent is not None:
            self.parent.add_usage(usage, usd, children, estimate)

    def find_summary_limit(self) -> LimitState | None:
        """Return the limit of turns that refuses a summary; only a session has one."""
        return None

    def count_summary(self) -> None:
        """Count a summary that starts, here or below; only a session does."""

    def take_back_summary(self) -> None:
        """Forget the last summary, which did not start; only a session counts it."""

    def _add_costs(self, usd: float | None, estimate: Usage) -> None:
        if estimate != NO_USAGE:
            self.estimate += estimate
        if usd is None:
            self.is_price_known = False
        else:
            self.usd += usd

    @contextmanager
    def pause(self) -> Generator[None]:
        """Stop the clocks of this run and its ancestors inside the `with` block."""
        self.set_paused(True)
        try:
            yield
        finally:
            self.set_paused(False)

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clocks of this run and its ancestors; calls nest."""
        if self.on_pause is not None:
            self.on_pause(paused)
        if self.parent is not None:
            self.parent.set_paused(paused)

    def find_exceeded_limit(self, seconds: float = 0.0) -> LimitState | None:
        """Return the first used-up limit of this run or an ancestor. `seconds`: age of the run."""
        return self._find_own_limit(1.0, seconds, self.turns) or self.find_shared_limit(1.0)

    def take_warning(self, seconds: float = 0.0) -> LimitState | None:
        """Return the first limit of which WARNING_FRACTION is used; afterwards always None.

        The turn that begins is counted, but not used. Its request has a permit if a shared limit
        holds.
        """
        if self.has_warned:
            return None
        state = self._find_own_limit(WARNING_FRACTION, seconds, self.turns - 1)
        if state is None and self.permit is not None:
            state = self.find_shared_limit(WARNING_FRACTION)
        self.has_warned = state is not None
        return state

    def _find_own_limit(self, fraction: float, seconds: float, turns: int) -> LimitState | None:
        budget = self.budget
        if budget.turns is not None and is_used(turns, budget.turns, fraction):
            return LimitState(Limit.TURNS, budget.turns, turns)
        if budget.seconds is not None and is_used(seconds, budget.seconds, fraction):
            return LimitState(Limit.SECONDS, budget.seconds, seconds)
        return None

    def find_passed_limit(self) -> LimitState | None:
        """Return a shared limit, here or above, of which more than all is used."""
        state = self.find_shared_limit(1.0)
        return state if state and state.spent > state.maximum else None

    def list_shared_limits(self) -> Iterator[LimitState]:
        """Yield the limits of this run that hold for its descendants, too."""
        for limit, maximum in self.shared_limits:
            yield LimitState(limit, maximum, self.compute_amount_spent(limit))

    def find_shared_limit(self, fraction: float) -> LimitState | None:
        """Return the first shared limit, here or above, of which this fraction is used."""
        if not self.has_shared_limits:
            return None
        for state in self.list_shared_limits():
            if is_used(state.spent, state.maximum, fraction):
                return state
        return self.parent.find_shared_limit(fraction) if self.parent else None

    def compute_amount_left(self, limit: Limit) -> float | None:
        """Return the amount of a shared limit that this run may spend; None if there is no limit.

        Amounts reserved for running children do not count.
        """
        if not self.has_shared_limits:
            return None
        above = self.parent.compute_amount_left(limit) if self.parent is not None else None
        maximum = getattr(self.budget, limit)
        if maximum is None:
            return above
        unspent = maximum - self.compute_amount_spent(limit)
        if above is not None and self._is_reserved:
            above += max(0, unspent)  # reserved for this run
        return choose_smaller(unspent - self.reserved.get(limit, 0), above)

    def compute_amount_for_request(self, limit: Limit, own: float) -> float:
        """Return what this run's limit leaves to a request, without regard to those under way.

        Arguments:
            own: part of the reserved amounts that is meant for the request.
        """
        unspent = getattr(self.budget, limit) - self.compute_amount_spent(limit)
        return unspent - max(0, self.reserved.get(limit, 0) - own)

    def compute_amount_spent(self, limit: Limit) -> float:
        """Return what the run and its descendants have spent of a shared limit."""
        if limit is Limit.USD:
            return self.usd + (self.estimate.usd or 0.0)
        known = getattr(self.usage, limit) + getattr(self.descendant_usage, limit)
        return known + getattr(self.estimate, limit)

    def check_children(self) -> None:
        """Raise ValueError if a meter of this process allows no further child."""
        for meter in self.walk_up():
            maximum = meter.budget.children
            if maximum is not None and meter.children >= maximum:
                raise ValueError(f"the budget of {maximum} children is used up")

    def add_children(self, count: int) -> None:
        """Count children in the meters of this process."""
        for meter in self.walk_up():
            meter.children += count


def is_used(spent: float, maximum: float, fraction: float) -> bool:
    """Return whether this fraction of a limit is used."""
    return spent >= maximum * fraction
