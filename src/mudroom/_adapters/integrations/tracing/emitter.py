"""Conversion of spans into those of the OpenTelemetry SDK, with ids that are known before."""

from __future__ import annotations

import threading

from opentelemetry import trace
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator

from ...._projections.spans import Span
from ...._projections.trace_ids import SpanContext
from ...._version import __version__
from ....errors import UsageError
from .converter import NANOSECONDS, SCOPE, Sampling, convert_context, find_parent


class FixedIds(IdGenerator):
    """Generator that returns the ids that were set; each thread has its own."""

    def __init__(self) -> None:
        self._local = threading.local()

    def set_ids(self, context: SpanContext) -> None:
        """Set the ids of the next span of this thread."""
        self._local.context = context

    def generate_span_id(self) -> int:
        """Return the span id that was set."""
        return self._local.context.span_id

    def generate_trace_id(self) -> int:
        """Return the trace id that was set."""
        return self._local.context.trace_id


class SpanEmitter:
    """Writer of spans to a TracerProvider.

    Its sampler, limits and processors hold. All spans of a trace are sampled, or none.
    """

    def __init__(self, provider: object) -> None:
        """Raise UsageError for a provider that is not one of the SDK."""
        if not isinstance(provider, TracerProvider):
            raise UsageError(
                f"the provider is a {type(provider).__name__}",
                where="Tracing",
                remedy="Give a TracerProvider of opentelemetry.sdk.trace.",
            )
        tracer = provider.get_tracer(SCOPE, __version__)
        self._tracer = tracer if isinstance(tracer, Tracer) else None  # None: it is disabled
        self._ids = FixedIds()
        if self._tracer is not None:
            # The provider has one tracer for each scope: sessions share it.
            if isinstance(self._tracer.id_generator, FixedIds):
                self._ids = self._tracer.id_generator
            self._tracer.id_generator = self._ids
        self._sampling = Sampling(self._tracer.sampler) if self._tracer else None

    def emit(self, span: Span) -> None:
        """Start and end a span with the times that it had."""
        tracer = self._tracer
        if tracer is None or not self._sampling or not self._sampling.is_sampled(span):
            return
        self._ids.set_ids(span.context)
        emitted = tracer.start_span(
            span.name,
            context=trace.set_span_in_context(_make_parent(span)),
            kind=trace.SpanKind.CLIENT if span.is_request else trace.SpanKind.INTERNAL,
            attributes=span.attributes,
            links=[trace.Link(convert_context(link)) for link in span.links],
            start_time=int(span.started_at * NANOSECONDS),
        )
        for event in span.events:
            emitted.add_event(event.name, event.attributes, int(event.at * NANOSECONDS))
        if span.has_failed:
            emitted.set_status(trace.StatusCode.ERROR, span.error or None)
        emitted.end(int(span.ended_at * NANOSECONDS))


def _make_parent(span: Span) -> trace.Span:
    above = find_parent(span)
    return trace.NonRecordingSpan(above) if above else trace.INVALID_SPAN
