"""Traces of a session: its events become spans of the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...._core.events import AnyEvent, StoredEvent
from ...._core.notices import Notice
from ...._projections.spans import ContentCapture, SessionSpans, Span
from ...._projections.trace_ids import TraceIds, parse_traceparent
from ....errors import UsageError
from .spec import Tracing
from .variables import (
    INSTALL_COMMAND,
    describe_error,
    explain_off,
    is_installed,
    read_content_switch,
)

if TYPE_CHECKING:
    from .writers import OtlpWriter, ProviderWriter


log = logging.getLogger("mudroom")

_OPEN_SECONDS = 10.0  # longest wait, at the end of a session, for the import of the packages


class SessionTracing:
    """Writes spans as events end them; the writer reports why it cannot deliver them."""

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
        """Open the writer in a thread, as importing the packages takes 0.3 s. Spans wait for it."""
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        try:
            self._writer = await asyncio.to_thread(self._open_writer, self._report)
        except Exception as error:  # noqa: BLE001  a variable the packages do not accept
            self._fail(error)
        early, self._early = self._early, []
        self._write(early)

    def observe(self, event: AnyEvent) -> None:
        if spans := self._spans.apply(event):
            self._write(spans)

    def observe_past(self, event: StoredEvent) -> None:
        """Add an event of an earlier process, which has delivered its spans."""
        self._spans.apply(event)

    def _write(self, spans: Sequence[Span]) -> None:
        if self._is_failed:
            return
        if self._writer is None:
            self._early.extend(spans)
            return
        try:
            self._writer.write(spans)
        except Exception as error:  # noqa: BLE001  the caller's processors must not end a run
            self._fail(error)

    async def close(self) -> None:
        """Deliver all spans, except those a server does not take within a few seconds."""
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
        """Log the first reason; the SDK's threads also call this."""
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
    notices: list[Notice],
    find_server: Callable[[str], tuple[str, int] | None],
) -> SessionTracing | None:
    """Prepare a session's traces; None if variables turn them off.

    The variables in `environ` are the session's; the exporter uses this process's. Adds a notice
    for each that is not used.
    Raises UsageError if the packages are not installed or a provider is of the wrong kind.
    """
    require_packages()
    if tracing.provider is None and (reason := explain_off(os.environ)):
        notices.append(Notice("unused", f"Traces are not exported: {reason}."))
        return None
    captures = tracing.captures_content
    if captures is None:
        captures, notice = read_content_switch(os.environ)
        if notice:
            notices.append(Notice("unused", notice))
    capture = ContentCapture(redact) if captures else None
    ids = TraceIds(session, _find_traceparent(tracing, environ, notices))
    spans = SessionSpans(session, capture=capture, redact=redact, find_server=find_server)
    if tracing.provider is None:
        return SessionTracing(ids, spans, partial(_open_otlp, tracing.meter_provider))
    from .writers import ProviderWriter

    writer = ProviderWriter(tracing.provider, tracing.meter_provider)  # a wrong provider fails here
    return SessionTracing(ids, spans, lambda _: writer)


# In the thread that opens the writer: the import is slow.
def _open_otlp(meter_provider: object | None, report: Callable[[str], None]) -> OtlpWriter:
    from .writers import OtlpWriter

    return OtlpWriter(meter_provider, report)


def require_packages() -> None:
    if not is_installed():
        raise UsageError(
            "traces need packages that are not installed", remedy=f"Install them: {INSTALL_COMMAND}"
        )


def _find_traceparent(tracing: Tracing, environ: Mapping[str, str], notices: list[Notice]) -> str:
    """Find the span the session belongs to: its caller's, or the one in the variable."""
    if tracing.provider is not None:
        from opentelemetry.trace import get_current_span

        outer = get_current_span().get_span_context()
        if outer.is_valid:
            return f"00-{outer.trace_id:032x}-{outer.span_id:016x}-{int(outer.trace_flags):02x}"
    text = environ.get("TRACEPARENT", "").strip()
    if text and parse_traceparent(text) is None:
        text = "TRACEPARENT is not used: it is no valid header traceparent."
        notices.append(Notice("unused", text))
        return ""
    return text
