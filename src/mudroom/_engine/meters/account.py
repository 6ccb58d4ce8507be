"""Account: how much of one limit is spent, and how much is held for work that has begun."""

from __future__ import annotations

from ..._core.budgets import Limit, LimitState
from ..._core.messages import Usage


class Account:
    """One limit of a run, or of a session, and of everything below it.

    Arguments:
        limit: tokens or US dollars.
        maximum: amount of the limit.

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
        """True while a request is under way."""
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
        """The limit and the amount spent of it."""
        return LimitState(self.limit, self.maximum, self.spent)

    def hold(self, amount: float) -> None:
        """Hold what a request costs at most."""
        self._requests += 1
        self.requested += amount

    def release(self, amount: float) -> None:
        """Release the amount held for a request."""
        self._requests -= 1
        # No rounding error remains when no request is under way.
        self.requested = self.requested - amount if self._requests else 0


def compute_cost(limit: Limit, usage: Usage, usd: float | None) -> float:
    """Return what an answer takes of a limit. `usd`: its price, None if unknown."""
    return (usd or 0.0) if limit is Limit.USD else getattr(usage, limit)
