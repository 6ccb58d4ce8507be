"""A run of a replay."""

from __future__ import annotations

from typing import Any

from .._core.runs import Reason, Report
from .._engine.run_context import RunContext


class ReplayedRun(RunContext):
    """The objects of a run of a replay.

    Attributes:
        recorded_report: the report in the record, None if it has none.
    """

    recorded_report: Report | None = None

    def make_report(self, reason: Reason, text: str, **fields: Any) -> Report:
        """Return the report of the run.

        Which words say that a budget did not suffice depends on the size of the first request, and
        a replay has neither the system prompt nor the tools: those of the record are used.
        """
        if reason is Reason.BUDGET and self.recorded_report:
            fields["error"] = self.recorded_report.error
        return super().make_report(reason, text, **fields)
