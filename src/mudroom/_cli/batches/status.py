"""A batch's status: numbers for screens, and a file of them for other processes."""

from __future__ import annotations

import os
from collections import Counter, deque
from pathlib import Path

import msgspec
from msgspec import Struct

from ..._core.events import AnyEvent, ModelCallRetried, RunFinished, TurnFailed, TurnFinished
from ..._core.json_values import get_decoder
from ..._platform.private_files import replace_private_file

_SAMPLE_SECONDS = 5.0
# Rate and remaining time are computed over this many recent seconds.
_WINDOW_SECONDS = 300.0


class BatchStatus(Struct, frozen=True):
    """A batch's numbers at one moment.

    `done` counts all lines with a result. `state` is "running", "stopping" or "ended"; `waits_for`
    is "provider", "parallel" or "". Requests are this process's, tokens and dollars those of all
    processes, rates those of the last minutes.
    """

    session: str
    output: str
    total: int
    done: int
    running: int
    reasons: dict[str, int]
    parallel: int
    state: str
    waits_for: str
    requests: int
    tokens: int
    usd: float
    usd_limit: float | None
    lines_per_second: float
    requests_per_second: float
    seconds_left: float | None
    seconds: float

    @property
    def failed(self) -> int:
        return self.done - self.reasons.get("GOAL", 0)

    @property
    def projected_usd(self) -> float | None:
        return self.usd / self.done * self.total if self.done and self.usd else None


class Rates:
    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int, int]] = deque([(now, 0, 0)])

    def add(self, now: float, lines: int, requests: int) -> tuple[float, float]:
        """Record the totals so far; return lines and requests per second."""
        samples = self._samples
        while len(samples) > 1 and now - samples[0][0] > _WINDOW_SECONDS:
            samples.popleft()
        first_at, first_lines, first_requests = samples[0]
        if now - samples[-1][0] >= _SAMPLE_SECONDS:
            samples.append((now, lines, requests))
        seconds = now - first_at
        if seconds <= 0:
            return 0.0, 0.0
        return (lines - first_lines) / seconds, (requests - first_requests) / seconds


class RequestCounter:
    """Requests of all runs: how many were answered, and which are being retried.

    `unavailable` runs are those whose last model call failed but may succeed later: the provider
    could not be reached, or the run ran out of time while retrying.
    """

    def __init__(self) -> None:
        self.answered = 0
        self.repeated: Counter[str] = Counter()
        self.unavailable: set[str] = set()

    def observe(self, event: AnyEvent) -> None:
        match event:
            case ModelCallRetried():
                self.repeated[event.run] += 1
            case TurnFinished():
                self.answered += 1
                self.repeated.pop(event.run, None)
                self.unavailable.discard(event.run)
            case TurnFailed():
                was_repeated = bool(self.repeated.pop(event.run, 0))
                if event.transient or was_repeated:
                    self.unavailable.add(event.run)
            case RunFinished():
                self.repeated.pop(event.run, None)
                if "." in event.run:  # a child; the lines' own runs are examined later
                    self.unavailable.discard(event.run)
            case _:
                pass


class StatusFile:
    """The file in the state folder with a batch's last status. Not part of the record."""

    def __init__(self, home: str, session: str) -> None:
        self._path = Path(home, "batches", session, "status.json")

    def write(self, status: BatchStatus) -> None:
        """Replace the status. Raises OSError."""
        replace_private_file(self._path, msgspec.json.encode(status))

    def read(self) -> BatchStatus | None:
        try:
            return get_decoder(BatchStatus).decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None


def list_batches(home: str) -> list[str]:
    try:
        return sorted(os.listdir(Path(home, "batches")))
    except OSError:
        return []
