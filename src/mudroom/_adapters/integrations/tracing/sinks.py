"""Sinks of spans: an OTLP server, and providers of the caller."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from ...._projections.spans import Span
from ...._version import __version__
from .converter import SpanConverter
from .emitter import SpanEmitter
from .metrics import SpanMetrics
from .variables import METRICS_ENDPOINT, find_address, has_metrics

_METRIC_SECONDS = 60.0
_STATUSES = range(100, 600)
_SERVICE = "mudroom"
_PACKAGE = "opentelemetry"


def make_resource() -> Resource:
    """Return what the variables say about this process; the service is `mudroom` by default."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": _SERVICE}))
    return Resource({"service.version": __version__}).merge(resource)


class ProviderSink:
    """Sink for providers of the caller, who flushes and closes them."""

    def __init__(self, provider: object, meter_provider: object | None) -> None:
        self._emitter = SpanEmitter(provider)
        self._metrics = SpanMetrics(meter_provider) if meter_provider else None

    def send(self, spans: Sequence[Span]) -> str:
        """Write spans."""
        for span in spans:
            self._emitter.emit(span)
            if self._metrics:
                self._metrics.record(span)
        return ""

    def close(self) -> str:
        """Do nothing: the provider belongs to the caller."""
        return ""

    def abort(self) -> str:
        """Return nothing: the reason is not known."""
        return ""


class OtlpSink:
    """Sink for the OTLP server that the variables name.

    Arguments:
        environ: the variables that name it, for messages.
        with_metrics: send metrics, too, if the variables name an address for them.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        meter_provider: object | None = None,
        with_metrics: bool = True,
    ) -> None:
        self._log = _ThreadLog()
        self._address = find_address(environ)
        self._has_failed = False
        with self._log.divert():
            resource = make_resource()
            self._exporter = OTLPSpanExporter()
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._meters = None
            if with_metrics and meter_provider is None and has_metrics(environ):
                self._meters = _OtlpMeters(environ, resource)
                meter_provider = self._meters.provider
        self._converter = SpanConverter(self._provider)
        self._metrics = SpanMetrics(meter_provider) if meter_provider else None

    def send(self, spans: Sequence[Span]) -> str:
        """Send spans in one request, and the metrics once a minute."""
        batch = [ended for span in spans if (ended := self._converter.convert(span))]
        if self._metrics:
            for span in spans:
                self._metrics.record(span)
        with self._log.divert():
            failure = self._export(batch) if batch else ""
            if self._meters and self._meters.is_due():
                failure = failure or self._meters.flush(self._log)
        return failure

    def close(self) -> str:
        """Send the metrics, and close the connections."""
        with self._log.divert():
            failure = self._meters.flush(self._log) if self._meters and not self._has_failed else ""
            self._exporter.shutdown()
            self._provider.shutdown()
            if self._meters:
                self._meters.provider.shutdown()
        return failure

    def abort(self) -> str:
        """End the waits between attempts."""
        self._exporter.shutdown()
        return f"{self._log.reason} ({self._address})" if self._log.reason else ""

    def _export(self, batch: Sequence[ReadableSpan]) -> str:
        self._log.reason = ""
        result = self._exporter.export(batch)
        self._has_failed = result is not SpanExportResult.SUCCESS
        return f"{self._log.reason or 'it failed'} ({self._address})" if self._has_failed else ""


class _OtlpMeters:
    """Metrics that are sent to the OTLP server, in the thread that asks for it."""

    def __init__(self, environ: Mapping[str, str], resource: Resource) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        self._address = find_address(environ, METRICS_ENDPOINT)
        self._due_at = time.monotonic() + _METRIC_SECONDS
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(), math.inf)
        self.provider = MeterProvider([reader], resource, shutdown_on_exit=False)

    def is_due(self) -> bool:
        """Return whether the last delivery is long ago."""
        return time.monotonic() >= self._due_at

    def flush(self, log: _ThreadLog) -> str:
        """Send the metrics; return why that failed, "" if it did not."""
        self._due_at = time.monotonic() + _METRIC_SECONDS
        log.reason = ""
        self.provider.force_flush()
        if not log.reason:
            return ""
        return f"metrics: {log.reason} ({self._address}); OTEL_METRICS_EXPORTER=none turns them off"


class _ThreadLog(logging.Filter):
    """Filter that takes the messages of OpenTelemetry's packages in one thread out of the log.

    They may contain addresses and headers with secrets. Only the kind of a failure is kept.

    Attributes:
        reason: kind of the last failure.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        self._thread = threading.get_ident()

    @contextmanager
    def divert(self) -> Generator[None]:
        """Take the messages inside the `with` block."""
        names = [name for name in logging.root.manager.loggerDict if _is_noisy(name)]
        loggers = [logging.getLogger(name) for name in names]
        for logger in loggers:
            logger.addFilter(self)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message belongs to another thread; keep the reason of others."""
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


def _is_noisy(name: str) -> bool:
    return name.partition(".")[0] in (_PACKAGE, "urllib3", "requests")


def _describe_failure(error: BaseException) -> str:
    """Return the kind of a failure, without its text."""
    kind = type(error).__name__
    if "Timeout" in kind:
        return "no answer in time"
    return "no connection" if kind == "ConnectionError" else kind
