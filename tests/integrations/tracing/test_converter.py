"""Spans for an OTLP server: the same bytes as those of the SDK's tracer, and its variables."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mudroom._adapters.integrations.tracing.converter import SpanConverter
from mudroom._adapters.integrations.tracing.emitter import SpanEmitter
from mudroom._projections.spans.span import Span, SpanEvent
from mudroom._projections.trace_ids import SpanContext


def make_spans(trace_id: int = 7 << 64 | 1) -> list[Span]:
    """Return a request below a run, with everything that a span can have."""
    texts = {f"key.{n}": f"value {n}" for n in range(5)}
    root = Span(
        context=SpanContext(trace_id, 2),
        name="invoke_agent main",
        started_at=1.5,
        ended_at=4.25,
        parent_id=9,
        has_outer_parent=True,
        attributes={**texts, "list": ("a", "b"), "n": 3},
        links=tuple(SpanContext(trace_id + n, 3 + n) for n in range(3)),
    )
    child = Span(
        context=SpanContext(trace_id, 5),
        name="chat m",
        started_at=2.0,
        ended_at=3.0,
        parent_id=2,
        is_request=True,
        events=tuple(SpanEvent(f"retry {n}", 2.5, {"wait": 1.5, "m": n}) for n in range(3)),
        has_failed=True,
        error="overloaded",
    )
    alone = Span(context=SpanContext(trace_id, 6), name="execute_tool x", started_at=2.0)
    return [root, child, alone]


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "3", "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "1"},
        {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "4"},
        {"OTEL_SPAN_EVENT_COUNT_LIMIT": "1", "OTEL_SPAN_LINK_COUNT_LIMIT": "2"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
        {"OTEL_SDK_DISABLED": "true"},
    ],
)
def test_spans_are_those_of_the_tracer(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "x"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    emitter = SpanEmitter(provider)
    converter = SpanConverter(provider)
    spans = make_spans()
    for span in spans:
        emitter.emit(span)
    made = [ended for span in spans if (ended := converter.convert(span))]
    assert encode(made) == encode(exporter.get_finished_spans())
    is_off = "off" in str(variables) or "OTEL_SDK_DISABLED" in variables
    assert len(made) == (0 if is_off else 3)


def encode(spans: Any) -> list[str]:
    """Return the spans as an OTLP server reads them, without the counts of dropped parts."""
    encoded = encode_spans(spans)
    lines: list[str] = []
    for resource in encoded.resource_spans:
        for scope in resource.scope_spans:
            lines.append(f"{resource.resource} {scope.scope}")
            for span in scope.spans:
                for part in (span, *span.events, *span.links):
                    part.ClearField("dropped_attributes_count")
                span.ClearField("dropped_events_count")
                span.ClearField("dropped_links_count")
                lines.append(str(span))
    return lines
