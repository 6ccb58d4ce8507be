"""What may be spent and what was: a budget is a wish, a meter holds a run and all its ancestors to it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from .messages import Usage


class Limit(StrEnum):
    """The limit that ended a run."""

    TURNS = "turns"
    SECONDS = "seconds"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    CHILDREN = "children"


class Budget(Struct, frozen=True, omit_defaults=True):
    """Limits of a run and everything below it; None is no limit.

    Arguments:
        turns: model calls of the run itself; the grace turn that asks for a summary is not counted.
        seconds: wall-clock time of the run.
        input_tokens, output_tokens: tokens of the run and all its descendants.
        children: runs started below this one, at any depth.
        depth: levels of children below this run; 0 forbids the task tool.

    Example:
        Budget(turns=30, seconds=600)
    """

    turns: int | None = None
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    children: int | None = None
    depth: int | None = None

    def within(self, outer: Budget) -> Budget:
        """These limits, each one no wider than `outer`'s."""
        return Budget(*(_least(mine, theirs) for mine, theirs in zip(self.values(), outer.values(), strict=True)))

    def over(self, lower: Budget) -> Budget:
        """These limits where they are set, `lower`'s elsewhere."""
        pairs: Any = zip(self.values(), lower.values(), strict=True)
        return Budget(*(theirs if mine is None else mine for mine, theirs in pairs))

    def values(self) -> tuple[float | int | None, ...]:
        """The limits in the order of the fields."""
        return (self.turns, self.seconds, self.input_tokens, self.output_tokens, self.children, self.depth)


class Meter:
    """What one run has spent. Tokens and children are charged to every ancestor too, so an outer limit binds all below it."""

    def __init__(self, budget: Budget, parent: Meter | None = None) -> None:
        self.budget, self.parent = budget, parent
        self.turns, self.children, self.usage, self.below = 0, 0, Usage(), Usage()

    def carve(self, wish: Budget) -> Meter:
        """A meter for a child: its wish, held within what is left here. Counts the child."""
        meter: Meter | None = self
        while meter is not None:
            meter.children += 1
            meter = meter.parent
        return Meter(wish.within(self._left()), self)

    def charge(self, usage: Usage) -> None:
        """Add the tokens of one model call, here and to every ancestor."""
        self.usage += usage
        meter = self.parent
        while meter is not None:
            meter.below += usage
            meter = meter.parent

    def exceeded(self, seconds: float = 0.0) -> Limit | None:
        """The first limit that is used up, here or in an ancestor; `seconds` is the run's age."""
        own = self.budget
        if own.turns is not None and self.turns >= own.turns:
            return Limit.TURNS
        if own.seconds is not None and seconds >= own.seconds:
            return Limit.SECONDS
        return self._tokens_exceeded()

    def full(self) -> bool:
        """Whether a further child would break a limit of this run or of an ancestor."""
        meter: Meter | None = self
        while meter is not None:
            if meter.budget.children is not None and meter.children >= meter.budget.children:
                return True
            meter = meter.parent
        return False

    def _tokens_exceeded(self) -> Limit | None:
        meter: Meter | None = self
        while meter is not None:
            spent, limit = meter.usage + meter.below, meter.budget
            if limit.input_tokens is not None and spent.input_tokens >= limit.input_tokens:
                return Limit.INPUT_TOKENS
            if limit.output_tokens is not None and spent.output_tokens >= limit.output_tokens:
                return Limit.OUTPUT_TOKENS
            meter = meter.parent
        return None

    def _left(self) -> Budget:
        spent, own = self.usage + self.below, self.budget
        return Budget(
            input_tokens=None if own.input_tokens is None else max(0, own.input_tokens - spent.input_tokens),
            output_tokens=None if own.output_tokens is None else max(0, own.output_tokens - spent.output_tokens),
            depth=None if own.depth is None else max(0, own.depth - 1),
        )


def _least(mine: float | int | None, theirs: float | int | None) -> Any:
    return theirs if mine is None else mine if theirs is None else min(mine, theirs)
