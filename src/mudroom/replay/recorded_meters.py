"""Recorded meters: the budgets and limits of a record, where a replay reaches them again."""

from __future__ import annotations

from collections.abc import Mapping

from .._core.budgets import Budget, Grant, LimitState
from .._core.messages import Usage
from .._core.runs import Brief
from .._engine.meters.meter import Meter, ParentMeter
from .._engine.meters.registry import Meters
from .recorded_stops import RecordedStops


class RecordedMeters(Meters):
    """Meters with the recorded budgets and limits."""

    def __init__(self, briefs: Mapping[str, Brief], stops: RecordedStops) -> None:
        super().__init__()
        self._briefs = briefs
        self._stops = stops

    def open(self, run_id: str, budget: Budget, parent: Meter | ParentMeter | None = None) -> Grant:
        """Open a meter for a run."""
        self._meters[run_id] = _RecordedMeter(run_id, budget, parent, self._stops)
        return Grant(run_id, budget)

    async def allocate(
        self, parent: Meter, run_id: str, requested: Budget, seconds: float
    ) -> Grant:
        """Open a meter for a child, with its recorded budget."""
        parent.add_usage(Usage(), 0.0, children=1)
        return self.open(run_id, self._briefs[run_id].budget, parent)


class _RecordedMeter(Meter):
    """Meter that counts the turns of the run; all other limits come from the record."""

    def __init__(
        self, run_id: str, budget: Budget, parent: Meter | ParentMeter | None, stops: RecordedStops
    ) -> None:
        super().__init__(Budget(turns=budget.turns), parent)
        self._run_id = run_id
        self._stops = stops

    def add_turns(self, count: int) -> None:
        """Count a turn, and permit its request as recorded."""
        super().add_turns(count)
        self.permit = self._stops.start_turn(self._run_id)

    def find_exceeded_limit(self, seconds: float = 0.0) -> LimitState | None:
        """Return the recorded limit, or the limit of turns."""
        return self._stops.find_limit(self._run_id) or super().find_exceeded_limit()

    def find_passed_limit(self) -> LimitState | None:
        """Return the limit in the recorded report."""
        return self._stops.find_passed_limit(self._run_id)

    def take_warning(self, seconds: float = 0.0) -> LimitState | None:
        """Return the limit of the recorded warning."""
        return self._stops.find_warning(self._run_id)
