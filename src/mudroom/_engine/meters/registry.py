"""The meters of the running runs of a session."""

from __future__ import annotations

from ..._core.budgets import Budget, Grant
from .meter import Meter, ParentMeter
from .request_gate import RequestGate


class Meters:
    """Meters of the running runs of a session, by run id.

    Attributes:
        gate: gate of their model requests.
        charged: ids of the children whose cost their parents have counted or will count, so that
            a parent that ends early neither misses nor repeats what an earlier process spent.
    """

    def __init__(self) -> None:
        self.gate = RequestGate()
        self.charged: set[str] = set()
        self._meters: dict[str, Meter] = {}

    def open(self, run_id: str, budget: Budget, parent: Meter | ParentMeter | None = None) -> Grant:
        """Open a meter for a run without a parent in this process.

        Arguments:
            parent: pays for the run, too: the session, or ancestors in another process.
        """
        self._meters[run_id] = Meter(budget, parent)
        self.charged.add(run_id)
        return Grant(run_id, budget)

    async def allocate(
        self, parent: Meter, run_id: str, requested: Budget, seconds: float
    ) -> Grant:
        """Open a meter for a child; see `Meter.allocate`. Meters of another process count it, too.

        Raises BudgetExceeded that names the limit that does not suffice.
        """
        meter = parent.allocate(requested, seconds)
        self.charged.add(run_id)
        self._meters[run_id] = meter
        grant = Grant(run_id, meter.budget)
        if remote := parent.find_remote_parent():
            try:
                await remote.add_child()
            except BaseException:
                parent.add_children(-1)
                self.close(grant)
                raise
        return grant

    def reopen(self, parent: Meter, run_id: str, budget: Budget) -> Grant:
        """Open a meter for a child that an earlier process started, with its recorded budget."""
        self._meters[run_id] = parent.reopen_child(budget)
        self.charged.add(run_id)
        return Grant(run_id, budget)

    def get(self, grant: Grant) -> Meter:
        """Return the meter of a grant."""
        return self._meters[grant.run_id]

    def close(self, grant: Grant) -> Meter:
        """Remove and return the meter of a run that ended, and release its reservation."""
        meter = self._meters.pop(grant.run_id)
        meter.release()
        return meter
