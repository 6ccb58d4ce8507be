"""Traces of one session: its events become spans of the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...._core.events import AnyEvent, StoredEvent
from ...._projections.spans import ContentCapture, SessionSpans, Span
from ...._projections.trace_ids import TraceIds, parse_traceparent
from ....errors import UsageError
from .spec import Tracing

if TYPE_CHECKING:
    from .writers import OtlpWriter, ProviderWriter


ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
METRICS_ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
INSTALL_COMMAND = "pip install 'mudroom[tracing]'"

_QUEUE_SIZE = "OTEL_BSP_MAX_QUEUE_SIZE"
_BATCH_SIZE = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
_COUNTS = (_QUEUE_SIZE, _BATCH_SIZE, "OTEL_BSP_SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL")
"""The SDK raises an error for some wrong values of these, and logs others with a traceback."""
_DEFAULT_QUEUE_SIZE = 16_384
"""Spans that may wait: a thousand children end about 3,000 at once, and the SDK's 2,048 would lose
some of them."""
_DEFAULT_BATCH_SIZE = 512
"""That of the SDK."""
_DEFAULT_ENDPOINT = "http://localhost:4318"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OUR_PROTOCOL = "http/protobuf"
_WITH_CONTENT = ("true", "1", "span_only", "span_and_event")
_WITHOUT_CONTENT = ("", "false", "0", "no_content")


def has_address(environ: Mapping[str, str]) -> bool:
    """Return whether the variables name an address for traces."""
    return bool(environ.get(ENDPOINT) or environ.get(TRACES_ENDPOINT))


def is_installed() -> bool:
    """Return whether the packages of the extra are installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:
        return False


def explain_off(environ: Mapping[str, str]) -> str:
    """Return which variable turns traces off, "" if none does."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporters and "otlp" not in exporters.split(","):
        return f"OTEL_TRACES_EXPORTER is {exporters}, and mudroom has only otlp"
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _OUR_PROTOCOL)
    if protocol != _OUR_PROTOCOL:
        return f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and mudroom has only {_OUR_PROTOCOL}"
    for name in _COUNTS:
        value = environ.get(name, "1").strip()
        if not value.isdecimal() or not int(value):
            return f"{name} is {value or 'empty'}, not a whole number above 0"
    batch = int(environ.get(_BATCH_SIZE, _DEFAULT_BATCH_SIZE))
    if batch > read_queue_size(environ):
        return f"{_BATCH_SIZE} is {batch}, more than {_QUEUE_SIZE} ({read_queue_size(environ)})"
    return ""


def read_queue_size(environ: Mapping[str, str]) -> int:
    """Return how many spans may wait to be sent. The variables must have passed `explain_off`."""
    return int(environ.get(_QUEUE_SIZE, _DEFAULT_QUEUE_SIZE))


def describe_error(error: Exception) -> str:
    """Return what an exception of the packages says about a variable, else only its kind.

    Other texts may have addresses or headers with secrets.
    """
    text = str(error)
    return text if text.startswith("OTEL_") else type(error).__name__


def has_metrics(environ: Mapping[str, str]) -> bool:
    """Return whether metrics are sent."""
    exporters = environ.get("OTEL_METRICS_EXPORTER", "otlp").strip()
    is_wanted = not exporters or "otlp" in exporters.split(",")
    return is_wanted and bool(environ.get(ENDPOINT) or environ.get(METRICS_ENDPOINT))


def read_content_switch(environ: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether spans have texts, and a notice about a value that is not used, or ""."""
    value = environ.get(CONTENT, "").strip().lower()
    if value in _WITH_CONTENT:
        return True, ""
    if value in _WITHOUT_CONTENT:
        return False, ""
    return False, f"{CONTENT}={value} is not used. Use span_only for texts in spans."


def find_address(environ: Mapping[str, str], own: str = TRACES_ENDPOINT) -> str:
    """Return the address of traces without its user, password and query.

    Arguments:
        own: variable with the whole address of this kind of data.
    """
    path = "v1/metrics" if own == METRICS_ENDPOINT else "v1/traces"
    address = environ.get(own)
    if not address:
        address = f"{(environ.get(ENDPOINT) or _DEFAULT_ENDPOINT).removesuffix('/')}/{path}"
    try:
        parts = urlsplit(address)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{host}{parts.path}"


log = logging.getLogger("mudroom")

_OPEN_SECONDS = 10.0
"""How long the end of a session waits for the import of the packages."""


class SessionTracing:
    """Watches the events of a session, and writes the spans they end.

    Arguments:
        ids: of the spans of the session.
        spans: fold of the events into spans.
        open_writer: opens the place for the spans. It gets a function that takes the reason why
            spans cannot be delivered.
    """

    def __init__(
        self,
        ids: TraceIds,
        spans: SessionSpans,
        open_writer: Callable[[Callable[[str], None]], OtlpWriter | ProviderWriter],
    ) -> None:
        self.ids = ids
        self._spans = spans
        self._open_writer = open_writer
        self._opening: asyncio.Task[None] | None = None
        self._writer: OtlpWriter | ProviderWriter | None = None
        self._early: list[Span] = []
        self._is_failed = False
        self._has_reported = False

    def start(self) -> None:
        """Open the writer in a thread: importing the packages takes 0.3 s. Spans wait for it."""
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        try:
            self._writer = await asyncio.to_thread(self._open_writer, self._report)
        except Exception as error:  # noqa: BLE001  a variable that the packages do not accept
            self._fail(error)
        early, self._early = self._early, []
        self._write(early)

    def observe(self, event: AnyEvent) -> None:
        """Add an event of the running session."""
        if spans := self._spans.apply(event):
            self._write(spans)

    def observe_past(self, event: StoredEvent) -> None:
        """Add an event of an earlier process, which delivered its spans."""
        self._spans.apply(event)

    def _write(self, spans: Sequence[Span]) -> None:
        if self._is_failed:
            return
        if self._writer is None:
            self._early.extend(spans)
            return
        try:
            self._writer.write(spans)
        except Exception as error:  # noqa: BLE001  processors of the caller must not end a run
            self._fail(error)

    async def close(self) -> None:
        """Deliver all spans; what a server does not take within a few seconds is left."""
        self._write(self._spans.finish())
        if self._opening and not self._opening.done():
            await asyncio.wait({self._opening}, timeout=_OPEN_SECONDS)
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
        elif not self._is_failed:
            self._report(f"the packages were not imported within {_OPEN_SECONDS:g} s")

    def _fail(self, error: Exception) -> None:
        self._is_failed = True
        self._report(describe_error(error))

    def _report(self, reason: str) -> None:
        """Log the first reason; the threads of the SDK call this, too."""
        if self._has_reported:
            return
        self._has_reported = True
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
    """Prepare the traces of a session; None if variables turn them off.

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
    if tracing.provider is None:
        return SessionTracing(ids, spans, partial(_open_otlp, tracing.meter_provider))
    from .writers import ProviderWriter

    writer = ProviderWriter(tracing.provider, tracing.meter_provider)  # a wrong one fails here
    return SessionTracing(ids, spans, lambda _: writer)


def _open_otlp(meter_provider: object | None, report: Callable[[str], None]) -> OtlpWriter:
    from .writers import OtlpWriter

    return OtlpWriter(meter_provider, report)


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
