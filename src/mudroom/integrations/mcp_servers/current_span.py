"""The span of a tool call as the current one of OpenTelemetry; the package `mcp` sends it on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def use_span(traceparent: str) -> Generator[None]:
    """Make a span the current one inside the `with` block; "" changes nothing."""
    if not traceparent:
        yield
        return
    from opentelemetry.context import attach, detach
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        detach(token)
