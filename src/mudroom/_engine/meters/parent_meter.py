"""ParentMeter: the meters above a run, and the time that they leave to it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from ..._core.budgets import Limit, LimitState
from ..._core.messages import NO_USAGE, Usage
from .request_plan import Admission, RequestPlan


class SharedTime(Struct, frozen=True):
    """The time that a run, or a session, leaves to the runs below it.

    Arguments:
        seconds: until they must have ended; negative when it is over.
        holds_ending: true if the last turn of each must fit into that time; below a session it
            follows.
        answer: seconds that an answer of these runs is expected to take; None while none arrived.
    """

    seconds: float
    holds_ending: bool = True
    answer: float | None = None


class MeterTimer(Protocol):
    """The clock of the run of a meter; see `RunTimer`."""

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clock; calls nest."""
        ...

    def find_time_below(self) -> SharedTime | None:
        """Return the time that the runs below have, None without a limit."""
        ...

    def learn_below(self, seconds: float) -> None:
        """Note how long an answer of a run below took."""
        ...


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
        """Count a child that starts. Raise BudgetExceeded if no further one may start."""
        ...

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clocks, here and above."""
        ...

    def find_time_below(self) -> SharedTime | None:
        """Return the time that the runs below have, None without a limit."""
        ...

    def learn_seconds(self, seconds: float) -> None:
        """Note how long an answer of a run directly below took."""
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
