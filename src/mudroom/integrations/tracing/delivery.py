"""Delivery of spans in a thread of its own: a session never waits for it, except at its end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ...projections.spans import Span

MAX_HELD = 50_000
"""Spans that wait for the thread; of more, the oldest are dropped."""
CLOSE_SECONDS = 2.0
"""Longest time that the end of a session waits for an answer of the place for spans."""
_MAX_CLOSE_SECONDS = 30.0
"""Longest time that it waits in all, while answers come."""
_OPEN_SECONDS = 10.0
"""Longest time that it waits until the packages are imported."""
_DELAY_SECONDS = 5.0
_BATCH = 512
"""Spans that are delivered together."""


class SpanSink(Protocol):
    """A place for spans. All methods are called in one thread, except `abort`."""

    def send(self, spans: Sequence[Span]) -> str:
        """Deliver spans; return why that failed, "" if it did not."""
        ...

    def close(self) -> str:
        """Deliver what is held, release everything; return as `send` does."""
        ...

    def abort(self) -> str:
        """Stop a delivery that takes too long; return why it does if that is known."""
        ...


class Delivery:
    """A thread that opens a sink and gives it the spans.

    Arguments:
        open_sink: called in the thread, because it imports slow packages.
        report: called at most once, with the reason, if spans cannot be delivered.

    Attributes:
        dropped: spans that were dropped because too many waited.
    """

    def __init__(self, open_sink: Callable[[], SpanSink], report: Callable[[str], None]) -> None:
        self.dropped = 0
        self._open_sink = open_sink
        self._report = report
        self._has_reported = False
        self._spans: deque[Span] = deque(maxlen=MAX_HELD)
        self._wakes = threading.Event()
        self._is_closed = False
        self._sink: SpanSink | None = None
        self._answered_at = 0.0
        self._thread = threading.Thread(target=self._run, name="mudroom-traces", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, spans: Sequence[Span]) -> None:
        """Hold spans for the next delivery."""
        self.dropped += max(0, len(self._spans) + len(spans) - MAX_HELD)
        self._spans.extend(spans)
        if len(self._spans) >= _BATCH:
            self._wakes.set()

    def close(self) -> None:
        """Deliver what is held. Wait while answers come; after CLOSE_SECONDS without one, end."""
        closed_at = time.monotonic()
        self._is_closed = True
        self._wakes.set()
        while self._thread.is_alive():
            last = closed_at + _OPEN_SECONDS
            if self._sink is not None:
                last = max(closed_at, self._answered_at) + CLOSE_SECONDS
            left = min(last, closed_at + _MAX_CLOSE_SECONDS) - time.monotonic()
            if left <= 0:
                reason = self._sink.abort() if self._sink else ""
                self._fail(reason or f"no answer within {CLOSE_SECONDS:g} s")
                return
            self._thread.join(left)
        if self.dropped:
            self._fail(f"{self.dropped:,} spans waited too long and were dropped")

    def _fail(self, reason: str) -> None:
        if reason and not self._has_reported:
            self._has_reported = True
            self._report(reason)

    def _run(self) -> None:
        try:
            sink = self._open_sink()
            self._answered_at = time.monotonic()
            self._sink = sink
            while not self._is_closed:
                self._wakes.wait(_DELAY_SECONDS)
                self._wakes.clear()
                self._deliver(sink)
            self._deliver(sink)
            self._fail(sink.close())
        except Exception as error:  # noqa: BLE001  of packages; their texts may have secrets
            self._fail(type(error).__name__)

    def _deliver(self, sink: SpanSink) -> None:
        """Deliver all spans that wait, in batches."""
        while self._spans:
            count = min(_BATCH, len(self._spans))
            failure = sink.send([self._spans.popleft() for _ in range(count)])
            self._fail(failure)
            if not failure:
                self._answered_at = time.monotonic()
