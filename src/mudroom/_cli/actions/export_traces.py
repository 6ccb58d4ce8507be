"""`mudroom export --format otel`: sends the spans of a recorded session to an OTLP server."""

from __future__ import annotations

import asyncio
import os

from ..._adapters.integrations.tracing.session_tracing import require_packages
from ..._adapters.integrations.tracing.variables import (
    explain_off,
    find_address,
    read_content_switch,
)
from ..._adapters.output_filters import Redactor
from ..._core.listings import count_noun
from ..._projections.spans import ContentCapture, SessionSpans
from ...errors import UsageError
from ..output.progress import print_notice
from .load_settings import load_settings
from .session_store import read_session


def export_traces(name: str, *, store: str | None = None) -> None:
    """Send a session's spans, with the same ids as live.

    Arguments:
        name, store: as for `export_session`.

    Raises UnknownName, JournalError, and UsageError if the spans cannot be sent.
    """
    require_packages()
    if reason := explain_off(os.environ):
        raise UsageError(f"traces cannot be sent: {reason}", remedy="Unset that variable.")
    home = load_settings(".", store=store).home
    session_id, events = asyncio.run(read_session(home, name))
    captures, notice = read_content_switch(os.environ)
    if notice:
        print_notice(notice)
    redact = Redactor(os.environ)
    capture = ContentCapture(redact) if captures else None
    spans = SessionSpans(session_id, capture=capture, redact=redact).apply_all(events)
    from ..._adapters.integrations.tracing.writers import send_spans

    if failure := send_spans(spans):
        raise UsageError(
            f"the traces were not delivered: {failure}",
            remedy="Start the server, or set OTEL_EXPORTER_OTLP_ENDPOINT.",
        )
    print_notice(f"{count_noun(len(spans), 'span')} sent to {find_address(os.environ)}")
