"""Traces of one session: its events become spans, which a thread delivers."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...._core.events import AnyEvent, StoredEvent
from ...._projections.spans import ContentCapture, SessionSpans, Span
from ...._projections.trace_ids import TraceIds, parse_traceparent
from ....errors import UsageError
from .spec import Tracing
from .variables import INSTALL_COMMAND, explain_off, is_installed, read_content_switch

log = logging.getLogger("mudroom")


class SessionTracing:
    """Observer of a session's events that delivers spans.

    Arguments:
        ids: of the spans of the session.
        spans: fold of the events into spans.
        open_sink: opens the place for the spans, in a thread.
    """

    def __init__(
        self, ids: TraceIds, spans: SessionSpans, open_sink: Callable[[], SpanSink]
    ) -> None:
        self.ids = ids
        self._spans = spans
        self._delivery = Delivery(open_sink, self._report)

    def start(self) -> None:
        """Start the thread."""
        self._delivery.start()

    def observe(self, event: AnyEvent) -> None:
        """Add an event of the running session."""
        if spans := self._spans.apply(event):
            self._delivery.add(spans)

    def observe_past(self, event: StoredEvent) -> None:
        """Add an event of an earlier process, which delivered its spans."""
        self._spans.apply(event)

    async def close(self) -> None:
        """Deliver all spans, and wait for that, but not for long."""
        self._delivery.add(self._spans.finish())
        await asyncio.to_thread(self._delivery.close)

    def _report(self, reason: str) -> None:
        log.warning(
            "Traces are not delivered: %s. Send them later: mudroom export --format otel %s",
            reason,
            self.ids.session,
        )


def open_session_tracing(
    tracing: Tracing,
    session: str,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
    notices: list[str],
) -> SessionTracing | None:
    """Return the exporter of a session, None if variables turn traces off.

    Arguments:
        environ: variables of the session. Those of the exporter are the ones of this process.
        redact: removes secrets from texts.
        notices: a line is added for each variable that is not used.

    Raises UsageError if the packages are not installed, or a provider is a wrong one.
    """
    require_packages()
    if tracing.provider is None and (reason := explain_off(os.environ)):
        notices.append(f"Traces are not exported: {reason}.")
        return None
    captures = tracing.captures_content
    if captures is None:
        captures, notice = read_content_switch(os.environ)
        if notice:
            notices.append(notice)
    capture = ContentCapture(redact) if captures else None
    ids = TraceIds(session, _find_traceparent(tracing, environ, notices))
    spans = SessionSpans(session, capture=capture, redact=redact)
    return SessionTracing(ids, spans, _make_opener(tracing))


def require_packages() -> None:
    """Raise UsageError if the packages of the extra are not installed."""
    if not is_installed():
        raise UsageError(
            "traces need packages that are not installed", remedy=f"Install them: {INSTALL_COMMAND}"
        )


def _find_traceparent(tracing: Tracing, environ: Mapping[str, str], notices: list[str]) -> str:
    """Return the span that the session belongs to: that of its caller, or of the variable."""
    if tracing.provider is not None:
        from opentelemetry.trace import get_current_span

        outer = get_current_span().get_span_context()
        if outer.is_valid:
            return f"00-{outer.trace_id:032x}-{outer.span_id:016x}-{int(outer.trace_flags):02x}"
    text = environ.get("TRACEPARENT", "").strip()
    if text and parse_traceparent(text) is None:
        notices.append("TRACEPARENT is not used: it is no valid header traceparent.")
        return ""
    return text


def _make_opener(tracing: Tracing) -> Callable[[], SpanSink]:
    """Return a function that opens the sink; it imports slow packages."""
    if tracing.provider is None:

        def open_otlp() -> SpanSink:
            from .sinks import OtlpSink

            return OtlpSink(os.environ, meter_provider=tracing.meter_provider)

        return open_otlp

    from .sinks import ProviderSink

    sink = ProviderSink(tracing.provider, tracing.meter_provider)  # a wrong provider fails here
    return lambda: sink


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
