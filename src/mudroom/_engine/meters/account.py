"""Account: one limit with the amounts spent and held, and the requests it holds for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ..._core.budgets import Limit, LimitState
from ..._core.messages import Usage


class Account:
    """One limit in tokens or US dollars, for a run or session and everything below it.

    Attributes:
        spent: what answers have cost so far.
        granted: unspent part of the amounts granted to runs below as their own limits.
        requested: the most that open requests can cost.
    """

    __slots__ = ("_requests", "granted", "limit", "maximum", "requested", "spent")

    def __init__(self, limit: Limit, maximum: float, spent: float = 0) -> None:
        self.limit = limit
        self.maximum = maximum
        self.spent = spent
        self.granted: float = 0
        self.requested: float = 0
        self._requests = 0

    @property
    def is_busy(self) -> bool:
        return self._requests > 0

    @property
    def unspent(self) -> float:
        """The unspent amount; negative once the limit is exceeded."""
        return self.maximum - self.spent

    @property
    def left(self) -> float:
        """The amount neither spent nor granted to a run below."""
        return self.unspent - self.granted

    @property
    def state(self) -> LimitState:
        return LimitState(self.limit, self.maximum, self.spent)

    def hold(self, amount: float) -> None:
        self._requests += 1
        self.requested += amount

    def release(self, amount: float) -> None:
        self._requests -= 1
        # Without open requests, no rounding error may remain.
        self.requested = self.requested - amount if self._requests else 0


def compute_cost(limit: Limit, usage: Usage, usd: float | None) -> float:
    """Return how much of a limit an answer uses. `usd`: its price, None if unknown."""
    return (usd or 0.0) if limit is Limit.USD else getattr(usage, limit)


LONGEST_ANSWER = 32_000  # tokens, if neither agent nor session sets a maximum
LONGEST_CHILD_ANSWER = 8_000  # the same for a child, until one of its answers is cut off


class RequestPlan(Struct, frozen=True):
    """What a model request will spend."""

    minimum: Mapping[Limit, float]  # without the answer; a low estimate
    maximum: Mapping[Limit, float]  # the same; a high estimate
    prices: Mapping[Limit, float]  # per token of the answer
    min_answer: int  # tokens that the answer may always have
    max_answer: int = LONGEST_ANSWER  # tokens, if enough is left
    is_summary: bool = False
    is_child: bool = False  # others may be working at the same time
    size: int = 0  # tokens of the request; a high estimate

    def compute_sent(self, tokens: int) -> dict[Limit, float]:
        return {
            limit: amount * tokens / max(1, self.size) for limit, amount in self.maximum.items()
        }


class Admission(Struct, frozen=True):
    """A request's permit or refusal by limits in another process."""

    number: int = 0  # identifies the request between the processes
    max_tokens: int | None = None  # of the answer; None if no limit counts them
    cut_by: LimitState | None = None  # the limit that keeps the answer from being longer
    refusal: LimitState | None = None  # the limit that refuses the request


class Permit:
    """A request the limits allow. Accounts hold its highest possible cost until `end`.

    Arguments:
        holds: the accounts, with the maximum amount each holds for the request.
        on_end: called at the end; None for a past request.
        max_tokens, cut_by: see `Admission`.
        turns: turns counted for the request.
        take_back: uncounts the turn or summary.
    """

    def __init__(
        self,
        holds: Sequence[tuple[Account, float]],
        on_end: Callable[[], None] | None,
        max_tokens: int | None,
        cut_by: LimitState | None,
        *,
        turns: int = 0,
        take_back: Callable[[], None] | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.cut_by = cut_by
        self.on_end = [on_end] if on_end is not None else []
        self.turns = turns
        self._take_back = take_back
        self._holds = holds
        for account, amount in holds:
            account.hold(amount)

    def cut_to(self, admission: Admission) -> None:
        """Limit the answer to the tokens that limits in another process allow."""
        maximum = admission.max_tokens
        if maximum is not None and (self.max_tokens is None or maximum < self.max_tokens):
            self.max_tokens = maximum
            self.cut_by = admission.cut_by

    def withdraw(self) -> None:
        """End a request that was never sent, so it costs no turn and is no summary."""
        if self._take_back is not None:
            self._take_back()
        self.end()

    def end(self) -> None:
        """Release the held amounts. Calling it again does nothing."""
        callbacks = self.on_end
        self.on_end = []
        for account, amount in self._holds if callbacks else ():
            account.release(amount)
        for callback in callbacks:
            callback()
