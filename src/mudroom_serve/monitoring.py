"""What a server tells its operator: counts for Prometheus, and notices of lasting faults."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from aiohttp.http import HttpProcessingError

_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counts since the server started, in Prometheus's text format."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, _Labels], float] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        self._counts[key] = self._counts.get(key, 0.0) + amount

    def render(self, gauges: Mapping[str, float]) -> str:
        """Render all counts, and `gauges`: current numbers by name."""
        lines: list[str] = []
        for name in sorted({name for name, _ in self._counts}):
            lines.append(f"# TYPE {name} counter")
            rows = sorted(item for item in self._counts.items() if item[0][0] == name)
            lines += [_format_row(name, labels, amount) for (_, labels), amount in rows]
        for name, amount in gauges.items():
            lines += [f"# TYPE {name} gauge", _format_row(name, (), amount)]
        return "\n".join([*lines, ""])


def _format_row(name: str, labels: Iterable[tuple[str, str]], amount: float) -> str:
    texts = [f'{label}="{_escape(value)}"' for label, value in labels]
    return f"{name}{'{' + ','.join(texts) + '}' if texts else ''} {amount:g}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Faults:
    """Faults already reported, so that each is reported once while it lasts.

    Clients reopen their streams every second, and the server repeats failed work. Beyond `limit`
    faults, the oldest is forgotten; after `seconds`, a fault is reported again.
    """

    def __init__(self, limit: int = 1_000, seconds: float = 600.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._told: dict[str, tuple[str, float]] = {}

    def add(self, subject: str, message: str) -> bool:
        """Return whether to report a fault. A subject has one at a time."""
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
        self._told.pop(subject, None)


class _NoticeHandler(logging.Handler):
    """Handler without tracebacks: clients sending garbage must not fill stderr."""

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
    """Make the web framework's log. It belongs to one server."""
    log = logging.Logger("mudroom.http", logging.ERROR)
    log.addHandler(_NoticeHandler(metrics, notify))
    return log
