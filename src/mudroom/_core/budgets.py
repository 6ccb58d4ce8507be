"""What may be spent and what was: a budget is a wish, a meter holds a run and all its ancestors to it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from .messages import Usage


class Limit(StrEnum):
    """The limit that ended a run."""

    TURNS = "turns"
    SECONDS = "seconds"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOTAL_TOKENS = "total_tokens"
    USD = "usd"


class Budget(Struct, frozen=True, omit_defaults=True):
    """Limits of a run and everything below it; None is no limit.

    Arguments:
        turns: model calls of the run itself; the grace turn that asks for a summary is not counted.
        seconds: wall-clock time of the run; time in which a person is asked does not count.
        input_tokens, output_tokens, total_tokens: tokens read, written, and both together, of the run and all its descendants.
        usd: US dollars of the run and all its descendants; needs a model whose price is known.
        children: runs started below this one, at any depth.
        depth: levels of children below this run; 0 forbids the task tool.

    Example:
        Budget(turns=30, seconds=600)
    """

    turns: int | None = None
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    children: int | None = None
    depth: int | None = None
    total_tokens: int | None = None

    def with_defaults(self, lower: Budget) -> Budget:
        """These limits where they are set, `lower`'s elsewhere."""
        pairs: Any = zip(astuple(self), astuple(lower), strict=True)
        return Budget(*[theirs if mine is None else mine for mine, theirs in pairs])


SHARED_LIMITS = (Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS, Limit.TOTAL_TOKENS, Limit.USD)
"""What a run spends from its ancestors' budgets too, and what is set aside for a child that has a limit of its own."""

WARNING_FRACTION = 0.9
"""The part of a limit at which the run is told that it nears its end."""


class Meter:
    """What one run has spent. Tokens, money and children are charged to every ancestor too, so an outer limit binds all below.

    What a child is granted is set aside in its parent until the child ends; what it did not use is then free again.
    """

    def __init__(self, budget: Budget, parent: Meter | None = None) -> None:
        self.parent = parent
        self.set_limits(budget)
        self.turns, self.children, self.usage, self.descendant_usage = 0, 0, Usage(), Usage()
        self.usd = 0.0
        self.is_price_known = True
        self.on_pause: Callable[[bool], None] = _ignore_pause
        self._allocated: set[Meter] = set()

    def set_limits(self, budget: Budget) -> None:
        """Hold the run to other limits from now on."""
        limits = ((limit, getattr(budget, limit)) for limit in SHARED_LIMITS)
        self.budget, self._limits = (
            budget,
            tuple((limit, most) for limit, most in limits if most is not None),
        )

    def allocate(self, wish: Budget, seconds: float = 0.0) -> Meter:
        """A meter for a child, with all it wishes set aside. `seconds`: the age of this run.

        Raises ValueError that says what does not fit.
        """
        for meter in self._with_ancestors():
            if meter.budget.children is not None and meter.children >= meter.budget.children:
                raise ValueError(f"the budget of {meter.budget.children} children is used up")
        granted: dict[str, Any] = {}
        for limit in SHARED_LIMITS:
            asked, left = getattr(wish, limit), self.amount_left(limit)
            if left is not None and (left <= 0 or (asked is not None and asked > left)):
                raise ValueError(
                    f"{limit}: {asked if asked is not None else 'some'} wanted, {max(left, 0):g} left"
                )
            granted[limit] = asked
        time = None if self.budget.seconds is None else max(0.0, self.budget.seconds - seconds)
        depth = None if self.budget.depth is None else max(0, self.budget.depth - 1)
        granted |= {"turns": wish.turns, "seconds": _smaller(wish.seconds, time)}
        child = Meter(
            Budget(children=wish.children, depth=_smaller(wish.depth, depth), **granted), self
        )
        for meter in self._with_ancestors():
            meter.children += 1
        self._allocated.add(child)
        return child

    def release(self) -> None:
        """Give back to the parent what was set aside and not used."""
        if self.parent is not None:
            self.parent._allocated.discard(self)

    def charge(self, usage: Usage, usd: float | None = 0.0) -> None:
        """Add tokens and money of this run, here and to every ancestor; None is an unknown price."""
        self.usage += usage
        for meter in self._with_ancestors():
            meter.usd += usd or 0.0
            meter.is_price_known = meter.is_price_known and usd is not None
            if meter is not self:
                meter.descendant_usage += usage

    def add_past_usage(self, children: int, usage: Usage, usd: float | None) -> None:
        """Add what runs below this one were and spent in a process that is dead, here and to every ancestor; None is an unknown price."""
        for meter in self._with_ancestors():
            meter.children += children
            meter.descendant_usage += usage
            meter.usd += usd or 0.0
            meter.is_price_known = meter.is_price_known and usd is not None

    @contextmanager
    def pause(self) -> Generator[None]:
        """Let the clocks of this run and its ancestors stand still, for as long as the `with` lasts."""
        meters = list(self._with_ancestors())
        for meter in meters:
            meter.on_pause(True)
        try:
            yield
        finally:
            for meter in meters:
                meter.on_pause(False)

    def exceeded_limit(self, seconds: float = 0.0) -> Limit | None:
        """The first limit that is used up, here or in an ancestor; `seconds` is the run's age."""
        return next((limit for limit, part in self._used_fractions(seconds) if part >= 1.0), None)

    def nearly_exceeded_limit(self, seconds: float = 0.0) -> Limit | None:
        """The first limit of this run of which nine tenths are used up."""
        return next(
            (limit for limit, part in self._used_fractions(seconds) if part >= WARNING_FRACTION),
            None,
        )

    def amount_left(self, limit: Limit) -> float | None:
        """What is left of a shared limit in this run and its ancestors, less what is set aside for children; None for no limit."""
        limited = ((meter, getattr(meter.budget, limit)) for meter in self._with_ancestors())
        return min(
            (
                most - meter.amount_spent(limit) - meter._reserved(limit)
                for meter, most in limited
                if most is not None
            ),
            default=None,
        )

    def amount_spent(self, limit: Limit) -> float:
        """What the run and all below it have spent of a shared limit."""
        if limit is Limit.USD:
            return self.usd
        return getattr(self.usage, limit) + getattr(self.descendant_usage, limit)

    def _used_fractions(self, seconds: float) -> Iterator[tuple[Limit, float]]:
        if self.budget.turns is not None:
            yield Limit.TURNS, _used_fraction(self.turns, self.budget.turns)
        if self.budget.seconds is not None:
            yield Limit.SECONDS, _used_fraction(seconds, self.budget.seconds)
        for meter in self._with_ancestors():
            for limit, most in meter._limits:
                yield limit, _used_fraction(meter.amount_spent(limit), most)

    def _reserved(self, limit: Limit) -> float:
        granted = (
            (getattr(child.budget, limit), child.amount_spent(limit)) for child in self._allocated
        )
        return sum(max(0, most - spent) for most, spent in granted if most is not None)

    def _with_ancestors(self) -> Iterator[Meter]:
        meter: Meter | None = self
        while meter is not None:
            yield meter
            meter = meter.parent


def _ignore_pause(_: bool) -> None:
    return


def _used_fraction(spent: float, most: float) -> float:
    return spent / most if most > 0 else 1.0


def _smaller(mine: float | int | None, theirs: float | int | None) -> Any:
    return theirs if mine is None else mine if theirs is None else min(mine, theirs)
