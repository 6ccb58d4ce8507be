"""Meters: compare spending and time of a run with the limits of the run and its ancestors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from .._core.budgets import Budget, Grant, Limit
from .._core.messages import Usage
from .._core.ports import Clock

_Number = TypeVar("_Number", int, float)

SHARED_LIMITS = (Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS, Limit.TOTAL_TOKENS, Limit.USD)
"""Limits that descendants spend from, too; a child's share of them is reserved in its parent."""

WARNING_FRACTION = 0.9
"""Used fraction of a limit at which a note warns the run."""


class ParentMeter(Protocol):
    """The part of a meter that the meters below it use. It may be a proxy in another process."""

    def add_usage(self, usage: Usage, usd: float | None, children: int = 0) -> None:
        """Add what a descendant spent. `usd`: US dollars, None if the price is unknown."""
        ...

    def first_shared_limit(self, fraction: float) -> Limit | None:
        """Return the first shared limit, here or above, of which this fraction is used."""
        ...

    def amount_left(self, limit: Limit) -> float | None:
        """Return what is left of a shared limit, here and above; None if there is no limit."""
        ...

    def check_children(self) -> None:
        """Raise ValueError if no further child may start, here or above."""
        ...

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clocks, here and above."""
        ...


class Meter:
    """Tokens, money, turns and children of one run.

    Tokens, money and children are added to every ancestor, too, so a limit of an ancestor holds
    for all runs below it. The amounts granted to a child stay reserved in its parent until
    `release`.
    """

    def __init__(self, budget: Budget, parent: ParentMeter | None = None) -> None:
        self.parent = parent
        self.set_limits(budget)
        self.turns = 0
        self.children = 0
        self.usage = Usage()
        self.descendant_usage = Usage()
        self.usd = 0.0
        self.is_price_known = True
        self.on_pause: Callable[[bool], None] | None = None
        self.has_warned = False
        self._allocated: set[Meter] = set()

    def set_limits(self, budget: Budget) -> None:
        """Replace the limits of the run."""
        limits = ((limit, getattr(budget, limit)) for limit in SHARED_LIMITS)
        self.budget = budget
        self._shared_limits = tuple((limit, most) for limit, most in limits if most is not None)

    def allocate(self, requested: Budget, seconds: float = 0.0) -> Meter:
        """Return a meter for a child and reserve what it requests.

        Arguments:
            seconds: age of this run.

        Raises ValueError that names the limit that does not suffice.
        """
        self.check_children()
        for limit in SHARED_LIMITS:
            self._check_amount(limit, getattr(requested, limit))
        child = Meter(self._child_budget(requested, seconds), self)
        self.add_usage(Usage(), 0.0, children=1)
        self._allocated.add(child)
        return child

    def release(self, child: Meter) -> None:
        """Make the unused part of what a child has reserved available again."""
        self._allocated.discard(child)

    def _check_amount(self, limit: Limit, requested: float | None) -> None:
        left = self.amount_left(limit)
        if left is None:
            return
        if left <= 0 or (requested is not None and requested > left):
            wanted = "some" if requested is None else requested
            raise ValueError(f"{limit}: {wanted} wanted, {max(left, 0):g} left")

    def _child_budget(self, requested: Budget, seconds: float) -> Budget:
        own = self.budget
        time_left = None if own.seconds is None else max(0.0, own.seconds - seconds)
        depth_left = None if own.depth is None else max(0, own.depth - 1)
        return Budget(
            turns=requested.turns,
            seconds=_smaller(requested.seconds, time_left),
            input_tokens=requested.input_tokens,
            output_tokens=requested.output_tokens,
            usd=requested.usd,
            children=requested.children,
            depth=_smaller(requested.depth, depth_left),
            total_tokens=requested.total_tokens,
        )

    def charge(self, usage: Usage, usd: float | None = 0.0) -> None:
        """Add tokens and money of this run, here and to every ancestor.

        Arguments:
            usd: US dollars, None if the price is unknown.
        """
        self.usage += usage
        self._add_money(usd)
        if self.parent is not None:
            self.parent.add_usage(usage, usd)

    def add_usage(self, usage: Usage, usd: float | None, children: int = 0) -> None:
        """Add what descendants spent, here and to every ancestor.

        Arguments:
            usd: US dollars, None if the price is unknown.
        """
        self.descendant_usage += usage
        self.children += children
        self._add_money(usd)
        if self.parent is not None:
            self.parent.add_usage(usage, usd, children)

    def _add_money(self, usd: float | None) -> None:
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

    def exceeded_limit(self, seconds: float = 0.0) -> Limit | None:
        """Return the first used-up limit of this run or an ancestor. `seconds`: age of the run."""
        return self._first_limit(1.0, seconds)

    def take_warning(self, seconds: float = 0.0) -> Limit | None:
        """Return the first limit of which WARNING_FRACTION is used; afterwards always None."""
        if self.has_warned:
            return None
        limit = self._first_limit(WARNING_FRACTION, seconds)
        self.has_warned = limit is not None
        return limit

    def _first_limit(self, fraction: float, seconds: float) -> Limit | None:
        budget = self.budget
        if budget.turns is not None and _used_fraction(self.turns, budget.turns) >= fraction:
            return Limit.TURNS
        if budget.seconds is not None and _used_fraction(seconds, budget.seconds) >= fraction:
            return Limit.SECONDS
        return self.first_shared_limit(fraction)

    def first_shared_limit(self, fraction: float) -> Limit | None:
        """Return the first shared limit, here or above, of which this fraction is used."""
        for limit, most in self._shared_limits:
            if _used_fraction(self.amount_spent(limit), most) >= fraction:
                return limit
        return self.parent.first_shared_limit(fraction) if self.parent is not None else None

    def amount_left(self, limit: Limit) -> float | None:
        """Return what is left of a shared limit for this run; None if there is no limit.

        Amounts reserved for running children are not left.
        """
        above = self.parent.amount_left(limit) if self.parent is not None else None
        most = getattr(self.budget, limit)
        if most is None:
            return above
        left = most - self.amount_spent(limit) - self._reserved(limit)
        return left if above is None else min(left, above)

    def amount_spent(self, limit: Limit) -> float:
        """Return what the run and its descendants have spent of a shared limit."""
        if limit is Limit.USD:
            return self.usd
        return getattr(self.usage, limit) + getattr(self.descendant_usage, limit)

    def check_children(self) -> None:
        """Raise ValueError if this run or an ancestor may start no further child."""
        most = self.budget.children
        if most is not None and self.children >= most:
            raise ValueError(f"the budget of {most} children is used up")
        if self.parent is not None:
            self.parent.check_children()

    def _reserved(self, limit: Limit) -> float:
        reserved = 0.0
        for child in self._allocated:
            most = getattr(child.budget, limit)
            if most is not None:
                reserved += max(0, most - child.amount_spent(limit))
        return reserved


class Meters:
    """Meters of the running runs of a session, by run id."""

    def __init__(self) -> None:
        self._meters: dict[str, Meter] = {}

    def open(self, run_id: str, budget: Budget, parent: ParentMeter | None = None) -> Grant:
        """Open a meter for a run without a parent in this process.

        Arguments:
            parent: charged for the run, too, if its ancestors are in another process.
        """
        self._meters[run_id] = Meter(budget, parent)
        return Grant(run_id, budget)

    def allocate(self, parent: Meter, run_id: str, requested: Budget, seconds: float) -> Grant:
        """Open a meter for a child; see `Meter.allocate`."""
        meter = parent.allocate(requested, seconds)
        self._meters[run_id] = meter
        return Grant(run_id, meter.budget)

    def get(self, grant: Grant) -> Meter:
        """Return the meter of a grant."""
        return self._meters[grant.run_id]

    def close(self, grant: Grant) -> Meter:
        """Remove and return the meter of a run that ended, and release what it reserved."""
        meter = self._meters.pop(grant.run_id)
        if isinstance(meter.parent, Meter):
            meter.parent.release(meter)
        return meter


class RunTimer:
    """Age of a run in seconds, without waiting for approvals, and the deadline of the run.

    Attributes:
        deadline: timeout of the run while it takes turns; each pause moves it later.
    """

    def __init__(self, clock: Clock, meter: Meter) -> None:
        self._clock = clock
        self._meter = meter
        self._started_at = clock.monotonic()
        self._paused_at: float | None = None
        self._pauses = 0
        self.deadline: asyncio.Timeout | None = None
        meter.on_pause = self._set_paused

    @property
    def age(self) -> float:
        """Seconds since the run started, without pauses."""
        now = self._clock.monotonic() if self._paused_at is None else self._paused_at
        return now - self._started_at

    @property
    def time_left(self) -> float | None:
        """Seconds until the time limit, None if there is no limit."""
        limit = self._meter.budget.seconds
        return None if limit is None else max(0.0, limit - self.age)

    def add_past(self, seconds: float) -> None:
        """Add the seconds that the run worked before a resume."""
        self._started_at -= seconds

    def _set_paused(self, paused: bool) -> None:
        self._pauses += 1 if paused else -1
        if paused and self._pauses == 1:
            self._paused_at = self._clock.monotonic()
        elif not self._pauses and self._paused_at is not None:
            self._started_at += self._clock.monotonic() - self._paused_at
            self._paused_at = None
        left = self.time_left
        deadline = self.deadline
        if left is None or deadline is None or deadline.expired():
            return
        loop = asyncio.get_running_loop()
        deadline.reschedule(None if self._pauses else loop.time() + left)


def _used_fraction(spent: float, most: float) -> float:
    return spent / most if most > 0 else 1.0


def _smaller(first: _Number | None, second: _Number | None) -> _Number | None:
    if first is None:
        return second
    return first if second is None else min(first, second)
