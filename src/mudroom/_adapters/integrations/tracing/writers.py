"""Destinations of spans and metrics: an OTLP server, or the caller's providers."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.metrics import MeterProvider as AnyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

from ...._projections.spans import Span
from ...._projections.trace_ids import SpanContext
from ...._version import __version__
from ....errors import UsageError
from .variables import METRICS_ENDPOINT, describe_error, find_address, has_metrics, read_queue_size

SCOPE = "mudroom"
_NANOSECONDS = 1_000_000_000
_MAX_TRACES = 10_000
"""Traces whose sampling decision is remembered; for others, it is made again."""


class FixedIds(IdGenerator):
    """Hands out the ids of the span being written, by thread: sessions may share a tracer."""

    def __init__(self) -> None:
        self._local = threading.local()

    def set_ids(self, context: SpanContext) -> None:
        self._local.context = context

    def generate_span_id(self) -> int:
        return self._local.context.span_id

    def generate_trace_id(self) -> int:
        return self._local.context.trace_id


class SpanEmitter:
    """Writes spans to a TracerProvider, with its sampler, limits and processors.

    Spans arrive when they end, so children come before their parents. The sampler is therefore
    asked once per trace, not per span.

    Raises UsageError for a provider that is not the SDK's.
    """

    def __init__(self, provider: object) -> None:
        if not isinstance(provider, TracerProvider):
            raise UsageError(
                f"the provider is a {type(provider).__name__}",
                where="Tracing",
                remedy="Give a TracerProvider of opentelemetry.sdk.trace.",
            )
        tracer = provider.get_tracer(SCOPE, __version__)
        self._tracer = tracer if isinstance(tracer, Tracer) else None  # None if disabled
        self._ids = FixedIds()
        self._sampled: dict[int, bool] = {}
        if self._tracer is not None:
            # A provider has one tracer per scope, shared by all sessions.
            if isinstance(self._tracer.id_generator, FixedIds):
                self._ids = self._tracer.id_generator
            self._tracer.id_generator = self._ids

    def emit(self, span: Span) -> bool:
        """Write a span with its original ids and times. Return whether it is sampled."""
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


_SHARED = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "error.type",
    "server.address",
    "server.port",
)
_KEYS = {
    "chat": (*_SHARED, "gen_ai.response.model"),
    "execute_tool": ("gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.type", "error.type"),
    "invoke_agent": (*_SHARED, "gen_ai.agent.name"),
}
"""Attributes of metrics, by operation."""
_SECONDS = [0.01 * 2**power for power in range(14)]
_FIRST_CHUNK_SECONDS = [
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
]
_TOKEN_COUNTS = [4.0**power for power in range(14)]
"""Bucket bounds as the conventions require. With the SDK's own, which begin at 0, 5 and 10 and end
at 10,000, most durations would share one bucket and most contexts another."""
_TOKENS = {"input": "gen_ai.usage.input_tokens", "output": "gen_ai.usage.output_tokens"}


class SpanMetrics:
    def __init__(self, provider: object) -> None:
        """Raise UsageError for a provider that is not OpenTelemetry's."""
        if not isinstance(provider, AnyMeterProvider):
            raise UsageError(
                f"the meter provider is a {type(provider).__name__}",
                where="Tracing",
                remedy="Give a MeterProvider of opentelemetry.sdk.metrics.",
            )
        meter = provider.get_meter(SCOPE, __version__)

        def create(name: str, unit: str, description: str, bounds: list[float]) -> Histogram:
            return meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=bounds
            )

        self._tokens = create(
            "gen_ai.client.token.usage", "{token}", "Tokens of model calls", _TOKEN_COUNTS
        )
        self._durations = {
            "chat": create(
                "gen_ai.client.operation.duration", "s", "Duration of model calls", _SECONDS
            ),
            "execute_tool": create(
                "gen_ai.execute_tool.duration", "s", "Duration of tool calls", _SECONDS
            ),
            "invoke_agent": create(
                "gen_ai.invoke_agent.duration", "s", "Duration of runs", _SECONDS
            ),
        }
        self._first_chunks = create(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "Time until the first part of an answer",
            _FIRST_CHUNK_SECONDS,
        )

    def record(self, span: Span) -> None:
        operation = str(span.attributes["gen_ai.operation.name"])
        keys = _KEYS[operation]
        attributes = {key: span.attributes[key] for key in keys if key in span.attributes}
        self._durations[operation].record(span.ended_at - span.started_at, attributes)
        if operation != "chat":
            return
        if span.first_chunk_at is not None:
            self._first_chunks.record(span.first_chunk_at - span.started_at, attributes)
        for kind, name in _TOKENS.items():
            tokens = span.attributes.get(name)
            if isinstance(tokens, int) and tokens:
                self._tokens.record(tokens, {**attributes, "gen_ai.token.type": kind})


SILENT_SECONDS = 2.0  # longest wait, at the end of a session, for the server's next answer
_MAX_CLOSE_SECONDS = 30.0  # longest wait in all while answers keep coming
_BATCH = 512  # spans per export request
_STATUSES = range(100, 600)
_PACKAGE = "opentelemetry"


class ProviderWriter:
    """Writes spans to the caller's providers, which the caller flushes and closes.

    Their processors run on the event loop, as for all other asyncio code of the caller.
    """

    def __init__(self, provider: object, meter_provider: object | None) -> None:
        self._emitter = SpanEmitter(provider)
        self._metrics = SpanMetrics(meter_provider) if meter_provider else None

    def write(self, spans: Sequence[Span]) -> None:
        for span in spans:
            self._emitter.emit(span)
            if self._metrics:
                self._metrics.record(span)

    def close(self) -> None:
        """Do nothing: the providers belong to the caller."""


class OtlpWriter:
    """Writes spans to the OTLP server named in this process's variables.

    `BatchSpanProcessor` holds them and sends them from its thread. Without a meter provider, the
    metrics also go to the server, if the variables say so. `report` is called from any thread.
    """

    def __init__(self, meter_provider: object | None, report: Callable[[str], None]) -> None:
        self._report = report
        self._room = read_queue_size(os.environ)
        self._held = 0
        self._dropped = 0
        self._metric_exporter: _Metrics | None = None
        self._meters: MeterProvider | None = None
        with _divert_log():
            resource = _make_resource()
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._exporter = _Spans(report)
            self._provider.add_span_processor(BatchSpanProcessor(self._exporter, self._room))
            if meter_provider is None and has_metrics(os.environ):
                self._metric_exporter = _Metrics(report)
                reader = PeriodicExportingMetricReader(self._metric_exporter)
                self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
                meter_provider = self._meters
        self._emitter = SpanEmitter(self._provider)
        self._metrics = SpanMetrics(meter_provider) if meter_provider else None

    def write(self, spans: Sequence[Span]) -> None:
        # If there are too many, the processor would drop the oldest and log it. Instead, the newest
        # are left out here, and counted.
        for span in spans:
            if self._held - self._exporter.taken >= self._room:
                self._dropped += 1
            elif self._emitter.emit(span):
                self._held += 1
            if self._metrics:
                self._metrics.record(span)

    def close(self) -> None:
        """Send the held spans, waiting only as long as the server keeps answering.

        `BatchSpanProcessor.shutdown` has a fixed limit of 30 s, so it runs in a separate thread;
        after SILENT_SECONDS without an answer, the exporters are told to give up.
        """
        closed_at = time.monotonic()
        ending = threading.Thread(target=self._end, name="mudroom-traces", daemon=True)
        ending.start()
        exporters = [each for each in (self._exporter, self._metric_exporter) if each]
        while ending.is_alive():
            answered_at = max(closed_at, *(each.delivery.answered_at for each in exporters))
            last = min(answered_at + SILENT_SECONDS, closed_at + _MAX_CLOSE_SECONDS)
            left = last - time.monotonic()
            if left <= 0:
                self._give_up(exporters)
                return
            ending.join(left)
        if self._dropped:
            self._report(f"{self._dropped:,} spans waited too long and were dropped")

    def _end(self) -> None:
        with _divert_log():
            self._provider.shutdown()
            if self._metric_exporter and self._exporter.delivery.has_failed:
                self._metric_exporter.delivery.is_stopped = True  # probably the same server
            if self._meters:
                self._meters.shutdown()

    def _give_up(self, exporters: Sequence[_Spans | _Metrics]) -> None:
        silence = f"no answer within {SILENT_SECONDS:g} s"
        for exporter in exporters:
            exporter.delivery.is_stopped = True
            if log := exporter.delivery.log:  # a request is under way
                exporter.delivery.report(log.reason or silence)
            with _divert_log():
                exporter.shutdown()  # ends the pause between attempts
        self._report(silence)


def send_spans(spans: Sequence[Span]) -> str:
    """Send a recorded session's spans now; return why that failed, "" on success."""
    failures: list[str] = []
    try:
        with _divert_log():
            provider = TracerProvider(resource=_make_resource(), shutdown_on_exit=False)
            exporter = _Spans(failures.append)
    except ValueError as error:
        return describe_error(error)
    made = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(made))
    emitter = SpanEmitter(provider)
    for start in range(0, len(spans), _BATCH):
        for span in spans[start : start + _BATCH]:
            emitter.emit(span)
        ended = made.get_finished_spans()
        made.clear()
        if ended and exporter.export(ended) is not SpanExportResult.SUCCESS:
            break
    exporter.shutdown()
    return failures[0] if failures else ""


class _Delivery:
    def __init__(self, report: Callable[[str], None]) -> None:
        # Collects the packages' messages during a request.
        self.log: _ThreadLog | None = None
        self.answered_at = 0.0  # on the monotonic clock
        self.has_failed = False
        self.is_stopped = False  # sends nothing more
        self.report = report  # adds the server's address, without secrets

    def run(self, export: Callable[[], object]) -> bool:
        """Send a batch, reporting any failure. Return whether it was sent."""
        if self.is_stopped:
            return False
        result = None
        with _divert_log() as log:
            self.log = log
            try:
                result = export()
            except Exception as error:  # noqa: BLE001  its text may contain secrets
                log.reason = type(error).__name__
        self.log = None
        self.has_failed = result not in (SpanExportResult.SUCCESS, MetricExportResult.SUCCESS)
        if self.has_failed:
            self.report(log.reason or "it failed")
        else:
            self.answered_at = time.monotonic()
        return not self.has_failed


class _Spans(OTLPSpanExporter):
    """An exporter that reports why it fails, and counts the spans it was given."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        address = find_address(os.environ)
        self.delivery = _Delivery(lambda reason: report(f"{reason} ({address})"))
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        is_sent = self.delivery.run(lambda: super(_Spans, self).export(spans))
        return SpanExportResult.SUCCESS if is_sent else SpanExportResult.FAILURE


class _Metrics(OTLPMetricExporter):
    """An exporter that reports why it fails, and how to do without it."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        address = find_address(os.environ, METRICS_ENDPOINT)
        hint = "OTEL_METRICS_EXPORTER=none turns them off"
        self.delivery = _Delivery(lambda reason: report(f"metrics: {reason} ({address}); {hint}"))

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = None, **kwargs: Any
    ) -> MetricExportResult:
        is_sent = self.delivery.run(
            lambda: super(_Metrics, self).export(metrics_data, timeout_millis, **kwargs)
        )
        return MetricExportResult.SUCCESS if is_sent else MetricExportResult.FAILURE


def _make_resource() -> Resource:
    """Describe this process according to the variables; the service is `mudroom` by default."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "mudroom"}))
    return Resource({"service.version": __version__}).merge(resource)


class _ThreadLog(logging.Filter):
    """Keeps the messages of OpenTelemetry's packages in one thread out of the log.

    They may contain addresses and headers with secrets, so only the kind of a failure is kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        if not record.name.startswith(_PACKAGE) or not isinstance(record.args, tuple):
            return False
        for value in record.args:
            if isinstance(value, BaseException):
                self.reason = _describe_failure(value)
            elif isinstance(value, int) and value in _STATUSES:
                self.reason = f"HTTP status {value}"
        if not self.reason and record.msg.startswith("Transient"):
            self.reason = "the server is busy or being started"
        if not self.reason and "due to timeout" in record.msg:
            self.reason = "no connection, or the server is busy"
        return False


@contextmanager
def _divert_log() -> Generator[_ThreadLog]:
    log = _ThreadLog()
    names = [name for name in list(logging.root.manager.loggerDict) if _is_noisy(name)]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(log)
    try:
        yield log
    finally:
        for logger in loggers:
            logger.removeFilter(log)


def _is_noisy(name: str) -> bool:
    return name.partition(".")[0] in (_PACKAGE, "urllib3", "requests")


def _describe_failure(error: BaseException) -> str:
    kind = type(error).__name__
    if "Timeout" in kind:
        return "no answer in time"
    return "no connection" if kind == "ConnectionError" else kind
