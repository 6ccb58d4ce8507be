"""Notices of the server: errors of the web framework, and faults that last.

Requests that are no HTTP are counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aiohttp.http import HttpProcessingError

from .metrics import Metrics


class Faults:
    """Faults that are told, so that each one is told once while it lasts.

    Clients open their streams again every second, and the server repeats failed work.

    Arguments:
        limit: number of faults that are kept; with more, the oldest one is forgotten.
        seconds: time after which a fault is told again.
    """

    def __init__(self, limit: int = 1_000, seconds: float = 600.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._told: dict[str, tuple[str, float]] = {}

    def add(self, subject: str, message: str) -> bool:
        """Note a fault, and return whether it must be told.

        Arguments:
            subject: the failed part, such as the id of a session. It has one fault at a time.
        """
        now = time.monotonic()
        known, when = self._told.get(subject, ("", 0.0))
        if known == message and now < when + self._seconds:
            return False
        self._told.pop(subject, None)
        self._told[subject] = (message, now)
        if len(self._told) > self._limit:
            del self._told[next(iter(self._told))]
        return True

    def remove(self, subject: str) -> None:
        """Note that a subject works."""
        self._told.pop(subject, None)


class _NoticeHandler(logging.Handler):
    """Handler without tracebacks: clients that send anything must not fill stderr.

    Arguments:
        notify: takes a line for stderr.
    """

    def __init__(self, metrics: Metrics, notify: Callable[[str], object]) -> None:
        super().__init__(logging.ERROR)
        self._metrics = metrics
        self._notify = notify

    def emit(self, record: logging.LogRecord) -> None:
        """Count a malformed request; its client gets status 400. Show all other errors."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            self._metrics.add("mudroom_requests_malformed_total")
            return
        cause = f": {type(error).__name__}: {error}" if error else ""
        self._notify(f"{record.getMessage()}{cause}")


def make_request_log(metrics: Metrics, notify: Callable[[str], object]) -> logging.Logger:
    """Return the log for the web framework. It belongs to one server."""
    log = logging.Logger("mudroom.http", logging.ERROR)
    log.addHandler(_NoticeHandler(metrics, notify))
    return log
