"""Worker port: a place where runs are executed."""

from __future__ import annotations

from typing import Any, Protocol

from ..agents import Brief, Report


class Worker(Protocol):
    """Executes runs: in this process, in other processes, in a cluster."""

    async def run(self, brief: Brief, meter: Any) -> Report:
        """Run a brief to its end and return the report.

        Raises CancelledError if the run is cancelled, and nothing for what happens inside the run.
        """
        ...
