"""Conversion of spans into ended ones of the OpenTelemetry SDK, without its tracer.

A span of a tracer takes ten times as long to make: it has a lock, may change, and tells processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, Tracer, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ...._projections.spans import Span
from ...._projections.trace_ids import SpanContext
from ...._version import __version__

SCOPE = "mudroom"
NANOSECONDS = 1_000_000_000
_MAX_TRACES = 10_000
"""Traces whose sampling is remembered; the decision is computed again for others."""
_UNSET = trace.Status(trace.StatusCode.UNSET)


class Sampling:
    """Decisions of a sampler: all spans of a trace are sampled, or none."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._sampled: dict[int, bool] = {}

    def is_sampled(self, span: Span) -> bool:
        """Return whether the trace of a span is sampled."""
        trace_id = span.context.trace_id
        if trace_id not in self._sampled:
            outer = None
            if not span.context.is_sampled:
                outer = trace.set_span_in_context(wrap(span.context, is_remote=True))
            result = self._sampler.should_sample(outer, trace_id, span.name)
            if len(self._sampled) >= _MAX_TRACES:
                self._sampled.clear()
            self._sampled[trace_id] = result.decision.is_sampled()
        return self._sampled[trace_id]


class SpanConverter:
    """Maker of ended spans, with the sampler and the resource of a provider.

    The limits are those of the variables.
    """

    def __init__(self, provider: TracerProvider) -> None:
        is_on = isinstance(provider.get_tracer(SCOPE, __version__), Tracer)
        self._sampling = Sampling(provider.sampler) if is_on else None
        self._resource = provider.resource
        self._scope = InstrumentationScope(SCOPE, __version__, "")
        self._limits = SpanLimits()

    def convert(self, span: Span) -> ReadableSpan | None:
        """Return an ended span, None for one that is not sampled."""
        if self._sampling is None or not self._sampling.is_sampled(span):
            return None
        limits = self._limits
        links = [trace.Link(convert_context(link)) for link in span.links]
        events = [
            Event(
                event.name,
                self._limit(event.attributes, limits.max_event_attributes),
                int(event.at * NANOSECONDS),
            )
            for event in span.events
        ]
        status = _UNSET
        if span.has_failed:
            status = trace.Status(trace.StatusCode.ERROR, span.error or None)
        return ReadableSpan(
            span.name,
            convert_context(span.context, is_sampled=True),
            find_parent(span),
            self._resource,
            self._limit(span.attributes, limits.max_span_attributes),
            _keep_last(events, limits.max_events),
            _keep_last(links, limits.max_links),
            trace.SpanKind.CLIENT if span.is_request else trace.SpanKind.INTERNAL,
            status=status,
            start_time=int(span.started_at * NANOSECONDS),
            end_time=int(span.ended_at * NANOSECONDS),
            instrumentation_scope=self._scope,
        )

    def _limit(self, attributes: Mapping[str, Any], count: int | None) -> Mapping[str, Any]:
        """Return attributes within the limits. Making a BoundedAttributes takes long."""
        longest = self._limits.max_span_attribute_length
        if longest is None and (count is None or len(attributes) <= count):
            return attributes
        return BoundedAttributes(count, attributes, max_value_len=longest)


def find_parent(span: Span) -> trace.SpanContext | None:
    """Return the context of the span above, None without one."""
    if not span.parent_id:
        return None
    above = SpanContext(span.context.trace_id, span.parent_id)
    return convert_context(above, is_remote=span.has_outer_parent)


def wrap(context: SpanContext, *, is_remote: bool) -> trace.NonRecordingSpan:
    """Return a span that only has a context."""
    return trace.NonRecordingSpan(convert_context(context, is_remote=is_remote))


def convert_context(
    context: SpanContext, *, is_remote: bool = False, is_sampled: bool | None = None
) -> trace.SpanContext:
    """Return a context of the SDK. `is_sampled`: None for what the context says."""
    sampled = context.is_sampled if is_sampled is None else is_sampled
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else 0)
    return trace.SpanContext(context.trace_id, context.span_id, is_remote, flags)


def _keep_last(items: list[Any], count: int | None) -> list[Any]:
    """Return the last items, as the SDK keeps them."""
    return items if count is None or len(items) <= count else items[len(items) - count :]
