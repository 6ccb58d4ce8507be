"""Meters: what a run has spent, and which limit of the run or of its ancestors is exceeded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from .._core.budgets import Budget, Limit
from .._core.messages import Usage

SHARED_LIMITS = (Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS, Limit.TOTAL_TOKENS, Limit.USD)
"""Limits that descendants spend from, too; a child's share of them is reserved in its parent."""

WARNING_FRACTION = 0.9
"""Used fraction of a limit at which the run is told that the limit is near."""


class Meter:
    """Tokens, money, turns and children of one run.

    Tokens, money and children are added to every ancestor, too, so a limit of an ancestor holds
    for all runs below it. What a child is allotted is reserved in its parent until `release`.
    """

    def __init__(self, budget: Budget, parent: Meter | None = None) -> None:
        self.parent = parent
        self.set_limits(budget)
        self.turns = 0
        self.children = 0
        self.usage = Usage()
        self.descendant_usage = Usage()
        self.usd = 0.0
        self.is_price_known = True
        self.on_pause: Callable[[bool], None] = _ignore_pause
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
        for meter in self._with_ancestors():
            if meter.budget.children is not None and meter.children >= meter.budget.children:
                raise ValueError(f"the budget of {meter.budget.children} children is used up")
        for limit in SHARED_LIMITS:
            self._check_amount(limit, getattr(requested, limit))
        child = Meter(self._child_budget(requested, seconds), self)
        for meter in self._with_ancestors():
            meter.children += 1
        self._allocated.add(child)
        return child

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

    def release(self) -> None:
        """Return the unused part of the reserved amounts to the parent."""
        if self.parent is not None:
            self.parent._allocated.discard(self)

    def charge(self, usage: Usage, usd: float | None = 0.0) -> None:
        """Add tokens and money of this run, here and to every ancestor.

        Arguments:
            usd: US dollars, None if the price is unknown.
        """
        self.usage += usage
        for meter in self._with_ancestors():
            meter._add_money(usd)
            if meter is not self:
                meter.descendant_usage += usage

    def add_past_usage(self, children: int, usage: Usage, usd: float | None) -> None:
        """Add what descendants spent before a resume, here and to every ancestor.

        Arguments:
            usd: US dollars, None if the price is unknown.
        """
        for meter in self._with_ancestors():
            meter.children += children
            meter.descendant_usage += usage
            meter._add_money(usd)

    def _add_money(self, usd: float | None) -> None:
        if usd is None:
            self.is_price_known = False
        else:
            self.usd += usd

    @contextmanager
    def pause(self) -> Generator[None]:
        """Stop the clocks of this run and its ancestors inside the `with` block."""
        meters = list(self._with_ancestors())
        for meter in meters:
            meter.on_pause(True)
        try:
            yield
        finally:
            for meter in meters:
                meter.on_pause(False)

    def exceeded_limit(self, seconds: float = 0.0) -> Limit | None:
        """Return the first used-up limit of this run or an ancestor. `seconds`: age of the run."""
        return self._first_limit_used(1.0, seconds)

    def nearly_exceeded_limit(self, seconds: float = 0.0) -> Limit | None:
        """Return the first limit of which WARNING_FRACTION is used. `seconds`: age of the run."""
        return self._first_limit_used(WARNING_FRACTION, seconds)

    def _first_limit_used(self, fraction: float, seconds: float) -> Limit | None:
        for limit, used in self._used_fractions(seconds):
            if used >= fraction:
                return limit
        return None

    def amount_left(self, limit: Limit) -> float | None:
        """Return what is left of a shared limit for this run; None if there is no limit.

        Amounts reserved for running children are not left.
        """
        amounts: list[float] = []
        for meter in self._with_ancestors():
            most = getattr(meter.budget, limit)
            if most is not None:
                amounts.append(most - meter.amount_spent(limit) - meter._reserved(limit))
        return min(amounts, default=None)

    def amount_spent(self, limit: Limit) -> float:
        """Return what the run and its descendants have spent of a shared limit."""
        if limit is Limit.USD:
            return self.usd
        return getattr(self.usage, limit) + getattr(self.descendant_usage, limit)

    def _used_fractions(self, seconds: float) -> Iterator[tuple[Limit, float]]:
        if self.budget.turns is not None:
            yield Limit.TURNS, _used_fraction(self.turns, self.budget.turns)
        if self.budget.seconds is not None:
            yield Limit.SECONDS, _used_fraction(seconds, self.budget.seconds)
        for meter in self._with_ancestors():
            for limit, most in meter._shared_limits:
                yield limit, _used_fraction(meter.amount_spent(limit), most)

    def _reserved(self, limit: Limit) -> float:
        reserved = 0.0
        for child in self._allocated:
            most = getattr(child.budget, limit)
            if most is not None:
                reserved += max(0, most - child.amount_spent(limit))
        return reserved

    def _with_ancestors(self) -> Iterator[Meter]:
        meter: Meter | None = self
        while meter is not None:
            yield meter
            meter = meter.parent


def _ignore_pause(_: bool) -> None:
    return


def _used_fraction(spent: float, most: float) -> float:
    return spent / most if most > 0 else 1.0


def _smaller(first: float | int | None, second: float | int | None) -> Any:
    if first is None:
        return second
    return first if second is None else min(first, second)
