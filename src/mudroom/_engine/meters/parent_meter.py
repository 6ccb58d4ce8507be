"""ParentMeter: the meters above a run that another process executes."""

from __future__ import annotations

from typing import Protocol

from ..._core.budgets import Limit, LimitState
from ..._core.messages import NO_USAGE, Usage
from .request_plan import Admission, RequestPlan


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

    async def admit(self, plan: RequestPlan, *, is_own: bool) -> Admission:
        """Wait until the limits above allow a request, and count its turn; see `RequestGate`.

        Arguments:
            is_own: true for a request of the run directly below.
        """
        ...

    def end_request(self, number: int) -> None:
        """End a request. `number`: that of its admission."""
        ...
