"""Where spans and metrics go: to an OTLP server, or to providers of the caller."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ...._projections.spans import Span
from ...._version import __version__
from .emitter import SpanEmitter
from .metrics import SpanMetrics
from .variables import (
    METRICS_ENDPOINT,
    describe_error,
    find_address,
    has_metrics,
    read_queue_size,
)

SILENT_SECONDS = 2.0
"""How long the end of a session waits for the next answer of the server."""
_MAX_CLOSE_SECONDS = 30.0
"""How long it waits in all while answers keep coming."""
_BATCH = 512
"""Spans in one request of an export."""
_STATUSES = range(100, 600)
_PACKAGE = "opentelemetry"


class ProviderWriter:
    """Writes spans to providers of the caller, who flushes and closes them.

    Their processors run on the event loop, as they do for all other asyncio code of the caller.
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
    """Writes spans to the OTLP server that the variables of this process name.

    `BatchSpanProcessor` holds them and sends them from its thread.

    Arguments:
        meter_provider: gets the metrics; None sends them to the server if the variables say so.
        report: called with the reason when something cannot be delivered, from any thread.
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
        """Hand spans to the processor.

        The processor would drop the oldest of too many and log it; the newest are left out here,
        and counted.
        """
        for span in spans:
            if self._held - self._exporter.taken >= self._room:
                self._dropped += 1
            elif self._emitter.emit(span):
                self._held += 1
            if self._metrics:
                self._metrics.record(span)

    def close(self) -> None:
        """Send what is held, but wait no longer than the server answers.

        `BatchSpanProcessor.shutdown` has a fixed limit of 30 s, so it runs in a thread of its own:
        after SILENT_SECONDS without an answer the exporters are told to give up.
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
                self._metric_exporter.delivery.is_stopped = True  # most likely the same server
            if self._meters:
                self._meters.shutdown()

    def _give_up(self, exporters: Sequence[_Spans | _Metrics]) -> None:
        silence = f"no answer within {SILENT_SECONDS:g} s"
        for exporter in exporters:
            exporter.delivery.is_stopped = True
            if log := exporter.delivery.log:  # a request is under way
                exporter.delivery.report(log.reason or silence)
            with _divert_log():
                exporter.shutdown()  # ends the pause between two attempts
        self._report(silence)


def send_spans(spans: Sequence[Span]) -> str:
    """Send the spans of a recorded session now; return why that failed, "" if it did not."""
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
    """What is known of the requests of one exporter.

    Attributes:
        log: what the packages log during the request that is under way; None between requests.
        answered_at: time of the last answer, on the monotonic clock.
        is_stopped: true to send nothing more.
        report: gets the reason of a failure, and adds the address of the server, without secrets.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self.log: _ThreadLog | None = None
        self.answered_at = 0.0
        self.has_failed = False
        self.is_stopped = False
        self.report = report

    def run(self, export: Callable[[], object]) -> bool:
        """Send a batch, and report why that failed. Return whether it was sent."""
        if self.is_stopped:
            return False
        result = None
        with _divert_log() as log:
            self.log = log
            try:
                result = export()
            except Exception as error:  # noqa: BLE001  its text may have secrets
                log.reason = type(error).__name__
        self.log = None
        self.has_failed = result not in (SpanExportResult.SUCCESS, MetricExportResult.SUCCESS)
        if self.has_failed:
            self.report(log.reason or "it failed")
        else:
            self.answered_at = time.monotonic()
        return not self.has_failed


class _Spans(OTLPSpanExporter):
    """Exporter that says why it fails, and counts the spans it was given."""

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
    """Exporter that says why it fails, and how to do without it."""

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
    """Return what the variables say about this process; the service is `mudroom` by default."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "mudroom"}))
    return Resource({"service.version": __version__}).merge(resource)


class _ThreadLog(logging.Filter):
    """Keeps the messages of OpenTelemetry's packages in one thread out of the log.

    They may contain addresses and headers with secrets, so only the kind of a failure is kept.

    Attributes:
        reason: kind of the last failure, "" if there was none.
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
    """Divert what OpenTelemetry's packages log in this thread."""
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
