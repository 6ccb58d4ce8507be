"""Log of the web framework: errors become notices, and requests that are no HTTP are counted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiohttp.http import HttpProcessingError

from .metrics import Metrics


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
