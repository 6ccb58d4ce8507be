"""Budgets: the limits of a run and of all runs below it."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from ..errors import UsageError, quote_value
from .type_checks import NamedFields

_Number = TypeVar("_Number", bound=float)

# A record holds integers of fewer than 64 bits.
_LARGEST = 2**62


class Limit(StrEnum):
    """A limit that can end a run."""

    TURNS = "turns"
    SECONDS = "seconds"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOTAL_TOKENS = "total_tokens"
    USD = "usd"

    @property
    def unit(self) -> str:
        return "US dollars" if self is Limit.USD else self.replace("_", " ")

    def format_amounts(self, *amounts: float) -> str:
        """Format an amount, or a part and the whole: "$0.0204 of $0.02", "3 of 5 turns"."""
        if self is Limit.USD:
            return " of ".join(_format_dollars(amount) for amount in amounts)
        return f"{' of '.join(f'{amount:,.10g}' for amount in amounts)} {self.unit}"


def _format_dollars(amount: float) -> str:
    """Format dollars with as many decimals as they have, at least two and at most nine."""
    whole, _, decimals = f"{amount:,.9f}".partition(".")
    return f"${whole}.{decimals.rstrip('0'):0<2}"


# What a child spends of these, its ancestors spend as well, so its share is reserved in its
# parent.
SHARED_LIMITS = (Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS, Limit.TOTAL_TOKENS, Limit.USD)


class LimitState(Struct, frozen=True, gc=False):
    """A limit and how much of it is used.

    Arguments:
        name: the limit.
        maximum: its amount.
        spent: the amount used; may exceed the maximum by one model answer.

    Example:
        if report.limit:
            print(report.limit.name, report.limit.spent, "of", report.limit.maximum)
    """

    # `field(name=...)` is the key in the record, see `events.py`.
    name: Limit = field(name="limit")
    maximum: float = field(name="most")
    spent: float


class Budget(Struct, metaclass=NamedFields, frozen=True, gc=False, omit_defaults=True):
    """Limits of a run, most of them shared with its descendants; None means no limit.

    Arguments:
        turns: model calls of the run itself; the call that asks for a summary at the end is extra.
        seconds: wall-clock time of the run, without waiting for approvals.
        input_tokens, output_tokens, total_tokens: tokens of the run and all its descendants.
        usd: US dollars of the run and all its descendants; needs a model with a known price.
        children: runs started below this one, at any depth.
        depth: levels of children below this run; 0 forbids the task tool. `Brief.depth` is the
            run's own level instead.

    Raises UsageError for an amount that is negative, infinite or not a number.

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

    def __post_init__(self) -> None:
        check_limits(self, fractional=("seconds", "usd"))

    def with_defaults(self, defaults: Budget) -> Budget:
        """Fill the limits that are None from `defaults`."""
        return _add_defaults(self, defaults)


@lru_cache(maxsize=64)
def limit_turns(turns: int) -> Budget:
    return Budget(turns=turns)


# Children of one agent get equal budgets: cached, a budget is computed and checked once.
@lru_cache(maxsize=64)
def _add_defaults(budget: Budget, defaults: Budget) -> Budget:
    pairs: Any = zip(astuple(budget), astuple(defaults), strict=True)
    return Budget(*[default if own is None else own for own, default in pairs])


@lru_cache(maxsize=64)
def limit_budget(budget: Budget, seconds: float | None, depth: int | None) -> Budget:
    """Cap the time and depth of a budget; None means no cap."""
    return replace(
        budget,
        seconds=choose_smaller(budget.seconds, seconds),
        depth=choose_smaller(budget.depth, depth),
    )


class Grant(Struct, frozen=True, gc=False):
    """Permission for a run to spend its budget.

    Arguments:
        run_id: the run that spends; its meter lives in the session's process.
    """

    run_id: str
    budget: Budget


def check_limits(limits: Struct, *, fractional: tuple[str, ...]) -> None:
    """Raise UsageError unless every field is None or a valid amount, by default a whole number."""
    for name, amount in zip(limits.__struct_fields__, astuple(limits), strict=True):
        # The fast path: a record has a budget per run, and nearly all amounts are None or small.
        if amount is None or (type(amount) is int and 0 <= amount <= _LARGEST):
            continue
        check_amount(name, amount, type(limits).__name__, is_count=name not in fractional)


def check_amount(
    name: str,
    amount: object,
    where: str,
    *,
    is_count: bool,
    minimum: int = 0,
    maximum: int | None = None,
) -> None:
    if isinstance(amount, int if is_count else int | float) and not isinstance(amount, bool):
        number: float = amount
        if minimum <= number <= (_LARGEST if maximum is None else maximum):  # false for nan
            return
    kind = "a whole number" if is_count else "a finite number"
    bounds = f"of at least {minimum}"
    remedy = (
        f"Use {minimum} or more." if minimum else "Leave it out, or set it to None, for no limit."
    )
    if maximum is not None:
        bounds = f"from {minimum} to {maximum}"
        remedy = "Leave it out, or set it to None, for the default."
    raise UsageError(
        f"{name} must be {kind} {bounds}, not {quote_value(amount)}", where=where, remedy=remedy
    )


def choose_smaller(first: _Number | None, second: _Number | None) -> _Number | None:
    """Return the smaller number, where None means unlimited."""
    if first is None:
        return second
    return first if second is None else min(first, second)
