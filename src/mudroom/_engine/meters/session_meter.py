"""The meter of a session: what all its prompts, tasks and scopes spend, and the time they take."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..._core.budgets import SHARED_LIMITS, Budget, Limit, LimitState, choose_smaller
from ..._core.messages import Usage
from ..._core.ports import Clock
from .meter import Meter
from .run_timer import RunTimer

if TYPE_CHECKING:
    from ..._projections.open_events import OpenEvents


class SessionMeter(Meter):
    """The meter above the runs that the caller starts: prompts, tasks and scopes.

    It counts their turns, and the time in which at least one of them works.
    """

    is_run = False

    def __init__(self, budget: Budget, clock: Clock) -> None:
        super().__init__(budget)
        self._timer = RunTimer(clock, self)
        self._working = 0
        self.set_paused(True)

    @property
    def has_shared_limits(self) -> bool:
        """True if the session has a limit: all of them hold for its runs, too."""
        budget = self.budget
        is_timed = budget.turns is not None or budget.seconds is not None
        return is_timed or bool(self.accounts)

    def start_time(self) -> None:
        """Count the time until `stop_time`, only once if several runs work."""
        if not self._working:
            self.set_paused(False)
        self._working += 1

    def stop_time(self) -> None:
        """Stop counting the time if no other run works."""
        self._working -= 1
        if not self._working:
            self.set_paused(True)

    def limit_budget(self, requested: Budget, depth: int) -> Budget:
        """Limit the budget of a run to what the session has left.

        `depth` is the level of the run: 0 for a prompt, 1 for a task or a scope.
        """
        own = self.budget
        children_left = None if own.children is None else max(0, own.children - self.children)
        turns_left = None if own.turns is None else max(0, own.turns - self.turns)
        levels_left = None if own.depth is None else max(0, own.depth - depth)
        amounts: dict[str, Any] = {}
        for limit in SHARED_LIMITS:
            left = self.compute_amount_left(limit)
            if left is not None:
                amount: float | None = getattr(requested, limit)
                amounts[limit] = choose_smaller(amount, max(0, left))
        limited = replace(
            requested,
            turns=choose_smaller(requested.turns, turns_left),
            seconds=choose_smaller(requested.seconds, self._timer.time_left),
            children=choose_smaller(requested.children, children_left),
            depth=choose_smaller(requested.depth, levels_left),
            **amounts,
        )
        # By default a prompt may start one level of children, a task or a scope none.
        return limited.with_defaults(Budget(depth=1 - depth))

    def add_child_turns(self, count: int) -> None:
        self.turns += count

    def list_shared_limits(self) -> Iterator[LimitState]:
        yield from super().list_shared_limits()
        if self.budget.turns is not None:
            yield LimitState(Limit.TURNS, self.budget.turns, self.turns)
        if self._timer.limit is not None:
            yield self._timer.limit

    def find_shared_limit(self, fraction: float) -> LimitState | None:
        # No warnings: each run warns of its own limits.
        return super().find_shared_limit(fraction) if fraction >= 1 else None

    def add_past(self, recorded: OpenEvents, unfinished: Collection[str]) -> None:
        """Add what earlier processes spent.

        The runs in `unfinished` continue: they add what they spent themselves.
        """
        past = recorded.amounts
        for event in recorded.events:
            if event.run not in unfinished:
                past.apply(event)
        self.charge(past.usage, past.usd, past.estimate)
        if not past.is_price_known:
            self.charge(Usage(), None)
        self.add_turns(past.turns)
        self.add_usage(Usage(), 0.0, children=past.children)
        self._timer.add_past(recorded.time.seconds)
