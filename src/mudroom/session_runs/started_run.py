"""StartedRun: a run without a parent, and what must be closed at its end."""

from __future__ import annotations

from .._core.budgets import Grant
from .._core.ports import RunHandle, Worker
from .._core.runs import Brief
from .._engine.session_context import SessionServices
from .meter import SessionMeter
from .requests import RunRequest


class StartedRun:
    """One run. Sessions have thousands of them at once, so it is one small object.

    Arguments:
        handles: of the runs that work; the run adds and removes its own.
    """

    __slots__ = ("_grant", "_handle", "_handles", "_is_counted", "_meter", "_services")

    def __init__(
        self, services: SessionServices, meter: SessionMeter, handles: set[RunHandle]
    ) -> None:
        self._services = services
        self._meter = meter
        self._handles = handles
        self._grant: Grant | None = None
        self._handle: RunHandle | None = None
        self._is_counted = False

    def start(self, worker: Worker, brief: Brief, request: RunRequest) -> RunHandle:
        """Start the run and return its handle. Call `close` also after an error."""
        services = self._services
        grant = self._grant = services.meters.open(brief.run_id, brief.budget, self._meter)
        if request.output_type:
            services.output_checks.add(brief.run_id, request.output_type.find_refusal)
        services.check_price(brief.model, services.meters.get(grant))
        self._meter.start_time()
        self._is_counted = True
        self._handle = worker.start(brief, grant)
        self._handles.add(self._handle)
        return self._handle

    def close(self) -> None:
        """Close the meter of the run and forget its handle."""
        if self._handle:
            self._handles.discard(self._handle)
        if self._is_counted:
            self._meter.stop_time()
        if self._grant:
            self._services.output_checks.remove(self._grant.run_id)
            self._services.meters.close(self._grant)
