"""Meter: compares what a run spends with the limits of the run and its ancestors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from msgspec.structs import replace

from ..._core.budgets import SHARED_LIMITS, Budget, Limit, LimitState, smaller
from ..._core.messages import Usage

NOTHING_PLANNED: Mapping[Limit, float] = {}

WARNING_FRACTION = 0.9
"""Used fraction of a limit at which a note warns the run."""


class ParentMeter(Protocol):
    """The part of a meter that the meters below it use. It may be a proxy in another process."""

    def add_turn(self) -> None:
        """Count a turn of a run directly below."""
        ...

    def add_usage(self, usage: Usage, usd: float | None, children: int = 0) -> None:
        """Add what a descendant spent. `usd`: US dollars, None if the price is unknown."""
        ...

    def find_shared_limit(
        self, fraction: float, planned: Mapping[Limit, float] = NOTHING_PLANNED
    ) -> LimitState | None:
        """Return the first shared limit, here or above, of which this fraction is used.

        Arguments:
            planned: amounts that will be spent; they count as used.
        """
        ...

    def hold(self, planned: Mapping[Limit, float], sign: int = 1) -> None:
        """Count amounts of a request that is under way, here and above; `sign` -1 ends it."""
        ...

    @property
    def has_shared_limits(self) -> bool:
        """True if there are shared limits, here or above; it does not change while runs work."""
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

    Attributes:
        reserved: unspent amounts of the running children that have limits of their own.
        held: amounts of requests that are under way, and that no reservation covers.
        has_shared_limits: true if a limit, here or above, holds for the runs below it, too.
    """

    def __init__(self, budget: Budget, parent: ParentMeter | None = None) -> None:
        self.parent = parent
        self.reserved: dict[Limit, float] = {}
        self.held: dict[Limit, float] = {}
        self.turns = 0
        self.children = 0
        self.usage = Usage()
        self.descendant_usage = Usage()
        self.usd = 0.0
        self.is_price_known = True
        self.on_pause: Callable[[bool], None] | None = None
        self.has_warned = False
        self._reserver: Meter | None = None
        self._shared_limits: tuple[tuple[Limit, float], ...] = ()
        self.set_limits(budget)

    def set_limits(self, budget: Budget) -> None:
        """Replace the limits of the run."""
        reserver = self._reserver
        self._reserve_in(None)
        limits = ((limit, getattr(budget, limit)) for limit in SHARED_LIMITS)
        self.budget = budget
        self._shared_limits = tuple((limit, most) for limit, most in limits if most is not None)
        is_limited_above = self.parent is not None and self.parent.has_shared_limits
        self.has_shared_limits = bool(self._shared_limits) or is_limited_above
        self._reserve_in(reserver)

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
        child._reserve_in(self)
        return child

    def hold(self, planned: Mapping[Limit, float], sign: int = 1) -> None:
        """Count amounts of a request that is under way, here and above; `sign` -1 ends it.

        Parallel runs see them, so that they do not all spend the same rest.
        """
        if not planned:
            return
        for limit, amount in planned.items():
            self.held[limit] = self.held.get(limit, 0) + sign * amount
        if self.parent is None:
            return
        if self._reserver is not None:
            planned = {
                limit: amount
                for limit, amount in planned.items()
                if getattr(self.budget, limit) is None
            }
        self.parent.hold(planned, sign)

    def release(self) -> None:
        """End the reservation of this run."""
        self._reserve_in(None)

    def _reserve_in(self, reserver: Meter | None) -> None:
        """Move the reservation of this run to a meter; None ends it."""
        self._change_reserved(-1)
        self._reserver = reserver
        self._change_reserved(1)

    def _change_reserved(self, sign: int) -> None:
        """Reserve the unspent amounts of this run (sign 1), or release them (sign -1)."""
        if self._reserver is None:
            return
        reserved = self._reserver.reserved
        for limit, most in self._shared_limits:
            unspent = max(0, most - self.amount_spent(limit))
            reserved[limit] = reserved.get(limit, 0) + sign * unspent

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
        return replace(
            requested,
            seconds=smaller(requested.seconds, time_left),
            depth=smaller(requested.depth, depth_left),
        )

    def start_turn(self) -> None:
        """Count a turn of this run."""
        self.turns += 1
        if self.parent is not None:
            self.parent.add_turn()

    def add_turn(self) -> None:
        """Do nothing: a run does not count the turns of its children."""

    def charge(self, usage: Usage, usd: float | None = 0.0) -> None:
        """Add tokens and money of this run, here and to every ancestor.

        Arguments:
            usd: US dollars, None if the price is unknown.
        """
        self._change_reserved(-1)
        self.usage += usage
        self._add_money(usd)
        self._change_reserved(1)
        if self.parent is not None:
            self.parent.add_usage(usage, usd)

    def add_usage(self, usage: Usage, usd: float | None, children: int = 0) -> None:
        """Add what descendants spent, here and to every ancestor.

        Arguments:
            usd: US dollars, None if the price is unknown.
        """
        self._change_reserved(-1)
        self.descendant_usage += usage
        self.children += children
        self._add_money(usd)
        self._change_reserved(1)
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

    def find_exceeded_limit(
        self, seconds: float = 0.0, planned: Mapping[Limit, float] = NOTHING_PLANNED
    ) -> LimitState | None:
        """Return the first used-up limit of this run or an ancestor.

        Arguments:
            seconds: age of the run.
            planned: amounts that the next request needs; they count as used.
        """
        return self._find_limit(1.0, seconds, planned)

    def take_warning(self, seconds: float = 0.0) -> LimitState | None:
        """Return the first limit of which WARNING_FRACTION is used; afterwards always None."""
        if self.has_warned:
            return None
        state = self._find_limit(WARNING_FRACTION, seconds)
        self.has_warned = state is not None
        return state

    def _find_limit(
        self, fraction: float, seconds: float, planned: Mapping[Limit, float] = NOTHING_PLANNED
    ) -> LimitState | None:
        budget = self.budget
        if budget.turns is not None and is_used(self.turns, budget.turns, fraction):
            return LimitState(Limit.TURNS, budget.turns, self.turns)
        if budget.seconds is not None and is_used(seconds, budget.seconds, fraction):
            return LimitState(Limit.SECONDS, budget.seconds, seconds)
        return self.find_shared_limit(fraction, planned)

    def list_shared_limits(self) -> Iterator[LimitState]:
        """Yield the limits of this run that hold for its descendants, too."""
        for limit, most in self._shared_limits:
            yield LimitState(limit, most, self.amount_spent(limit))

    def find_shared_limit(
        self, fraction: float, planned: Mapping[Limit, float] = NOTHING_PLANNED
    ) -> LimitState | None:
        """Return the first shared limit, here or above, of which this fraction is used."""
        if not self.has_shared_limits:
            return None
        for state in self.list_shared_limits():
            coming = planned.get(state.name, 0) + self.held.get(state.name, 0)
            if is_used(state.spent + coming, state.most, fraction):
                return state
        return self.parent.find_shared_limit(fraction, planned) if self.parent else None

    def amount_left(self, limit: Limit) -> float | None:
        """Return what is left of a shared limit for this run; None if there is no limit.

        Amounts reserved for running children are not left.
        """
        if not self.has_shared_limits:
            return None
        above = self.parent.amount_left(limit) if self.parent is not None else None
        most = getattr(self.budget, limit)
        if most is None:
            return above
        unspent = most - self.amount_spent(limit) - self.held.get(limit, 0)
        if above is not None and self._reserver is not None:
            above += max(0, unspent)  # reserved for this run
        return smaller(unspent - self.reserved.get(limit, 0), above)

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


def is_used(spent: float, most: float, fraction: float) -> bool:
    """Return whether this fraction of a limit is used."""
    return spent >= most * fraction
