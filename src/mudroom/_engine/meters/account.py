"""Account: one limit with the amounts spent and held, and the requests it holds for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ..._core.budgets import Limit, LimitState
from ..._core.messages import Usage


class Account:
    """One limit of a run, or of a session, and of everything below it, in tokens or US dollars.

    Attributes:
        spent: what answers have cost so far.
        granted: unspent part of the amounts that runs below got as limits of their own.
        requested: what the requests under way cost at most.
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
        """The unspent amount; negative once the limit is passed."""
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
        # No rounding error remains when no request is under way.
        self.requested = self.requested - amount if self._requests else 0


def compute_cost(limit: Limit, usage: Usage, usd: float | None) -> float:
    """Return what an answer takes of a limit. `usd`: its price, None if unknown."""
    return (usd or 0.0) if limit is Limit.USD else getattr(usage, limit)


LONGEST_ANSWER = 32_000  # tokens in a plan, where neither agent nor session sets a maximum
LONGEST_CHILD_ANSWER = 8_000  # the same for a child, until one of its answers was cut off


class RequestPlan(Struct, frozen=True):
    """Amounts that a model request will spend."""

    minimum: Mapping[Limit, float]  # without the answer, estimated from below
    maximum: Mapping[Limit, float]  # the same, estimated from above
    prices: Mapping[Limit, float]  # of one token of the answer
    min_answer: int  # tokens that the answer may always have
    max_answer: int = LONGEST_ANSWER  # tokens where enough is left
    is_summary: bool = False
    is_child: bool = False  # others may work beside the run
    size: int = 0  # tokens of the request, estimated from above

    def compute_sent(self, tokens: int) -> dict[Limit, float]:
        return {
            limit: amount * tokens / max(1, self.size) for limit, amount in self.maximum.items()
        }


class Admission(Struct, frozen=True):
    """Permit or refusal of a request by limits in another process."""

    number: int = 0  # id of the request in the channel between the processes
    max_tokens: int | None = None  # of the answer; None: no limit counts them
    cut_by: LimitState | None = None  # the limit that allows no longer answer
    refusal: LimitState | None = None  # the limit that does not allow the request


class Permit:
    """A request that the limits allow. Accounts hold its highest cost until `end`.

    Arguments:
        holds: accounts, and the maximum amounts of the request that they hold.
        on_end: called at the end; None for a request of the past.
        max_tokens, cut_by: see `Admission`.
        turns: turns that the meters have counted for the request.
        take_back: removes the turn or the summary that the meters have counted.
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
        """Cut the answer to the tokens that limits in another process allow."""
        maximum = admission.max_tokens
        if maximum is not None and (self.max_tokens is None or maximum < self.max_tokens):
            self.max_tokens = maximum
            self.cut_by = admission.cut_by

    def withdraw(self) -> None:
        """End a request that was not sent: it has cost no turn, and is no summary."""
        if self._take_back is not None:
            self._take_back()
        self.end()

    def end(self) -> None:
        """Release the held amounts. A second call does nothing."""
        callbacks = self.on_end
        self.on_end = []
        for account, amount in self._holds if callbacks else ():
            account.release(amount)
        for callback in callbacks:
            callback()
