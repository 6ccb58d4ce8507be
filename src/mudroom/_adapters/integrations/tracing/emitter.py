"""Spans of the projection, written through the tracer of an OpenTelemetry provider."""

from __future__ import annotations

import threading

from opentelemetry import trace
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator

from ...._projections.spans import Span
from ...._projections.trace_ids import SpanContext
from ...._version import __version__
from ....errors import UsageError

SCOPE = "mudroom"
_NANOSECONDS = 1_000_000_000
_MAX_TRACES = 10_000
"""Traces whose sampling decision is remembered; it is made again for any others."""


class FixedIds(IdGenerator):
    """Generator that hands out the ids of the span being written.

    Sessions in several threads may share a tracer, so each thread has its own.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def set_ids(self, context: SpanContext) -> None:
        """Set the ids of this thread's next span."""
        self._local.context = context

    def generate_span_id(self) -> int:
        return self._local.context.span_id

    def generate_trace_id(self) -> int:
        return self._local.context.trace_id


class SpanEmitter:
    """Writes spans to a TracerProvider, whose sampler, limits and processors apply.

    Spans arrive when they end, so children come before their parents. The sampler is therefore
    asked once for a trace, and not span by span.

    Raises UsageError for a provider that is not one of the SDK.
    """

    def __init__(self, provider: object) -> None:
        if not isinstance(provider, TracerProvider):
            raise UsageError(
                f"the provider is a {type(provider).__name__}",
                where="Tracing",
                remedy="Give a TracerProvider of opentelemetry.sdk.trace.",
            )
        tracer = provider.get_tracer(SCOPE, __version__)
        self._tracer = tracer if isinstance(tracer, Tracer) else None  # None: it is disabled
        self._ids = FixedIds()
        self._sampled: dict[int, bool] = {}
        if self._tracer is not None:
            # A provider has one tracer for each scope, which all sessions share.
            if isinstance(self._tracer.id_generator, FixedIds):
                self._ids = self._tracer.id_generator
            self._tracer.id_generator = self._ids

    def emit(self, span: Span) -> bool:
        """Write a span with the ids and times it had. Return whether it is sampled."""
        tracer = self._tracer
        if tracer is None or not self._is_sampled(tracer, span):
            return False
        self._ids.set_ids(span.context)
        emitted = tracer.start_span(
            span.name,
            context=trace.set_span_in_context(_make_parent(span)),
            kind=trace.SpanKind.CLIENT if span.is_request else trace.SpanKind.INTERNAL,
            attributes=span.attributes,
            links=[trace.Link(_convert(link)) for link in span.links],
            start_time=int(span.started_at * _NANOSECONDS),
        )
        for event in span.events:
            emitted.add_event(event.name, event.attributes, int(event.at * _NANOSECONDS))
        if span.has_failed:
            emitted.set_status(trace.StatusCode.ERROR, span.error or None)
        emitted.end(int(span.ended_at * _NANOSECONDS))
        return True

    def _is_sampled(self, tracer: Tracer, span: Span) -> bool:
        trace_id = span.context.trace_id
        if trace_id not in self._sampled:
            outer = None
            if not span.context.is_sampled:
                parent = trace.NonRecordingSpan(_convert(span.context, is_remote=True))
                outer = trace.set_span_in_context(parent)
            result = tracer.sampler.should_sample(outer, trace_id, span.name)
            if len(self._sampled) >= _MAX_TRACES:
                self._sampled.clear()
            self._sampled[trace_id] = result.decision.is_sampled()
        return self._sampled[trace_id]


def _make_parent(span: Span) -> trace.Span:
    if not span.parent_id:
        return trace.INVALID_SPAN
    above = SpanContext(span.context.trace_id, span.parent_id)
    return trace.NonRecordingSpan(_convert(above, is_remote=span.has_outer_parent))


def _convert(context: SpanContext, *, is_remote: bool = False) -> trace.SpanContext:
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if context.is_sampled else 0)
    return trace.SpanContext(context.trace_id, context.span_id, is_remote, flags)
