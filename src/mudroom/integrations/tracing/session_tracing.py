"""Traces of one session: its events become spans, which a thread delivers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping

from ..._core.events import AnyEvent, StoredEvent
from ...errors import UsageError
from ...projections.spans import ContentCapture, SessionSpans
from ...projections.trace_ids import TraceIds, parse_traceparent
from .delivery import Delivery, SpanSink
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
