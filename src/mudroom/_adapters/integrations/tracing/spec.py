"""The argument of `Integrations(tracing=...)`."""

from __future__ import annotations

from msgspec import Struct


class Tracing(Struct, frozen=True, kw_only=True):
    """Traces of a session for OpenTelemetry; they need the extra `mudroom[tracing]`.

    Arguments:
        provider: a TracerProvider of `opentelemetry.sdk.trace` that gets the spans. It is neither
            flushed nor shut down. None: the spans go to the address in the variables
            OTEL_EXPORTER_OTLP_…, or to http://localhost:4318.
        meter_provider: a MeterProvider that gets the metrics. None: they go to the same address as
            the spans, if OTEL_EXPORTER_OTLP_ENDPOINT or …_METRICS_ENDPOINT is set.
        captures_content: whether spans contain the texts of prompts, answers and tool calls,
            without secrets. None: as set by OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT.

    Opening a session with it raises UsageError if the extra is not installed or a provider is not
    the SDK's.

    Example:
        integrations = Integrations(tracing=Tracing(captures_content=True))
        async with Session(model="offline", integrations=integrations) as session:
            await session.run("Which testing framework does this project use?")
    """

    provider: object | None = None
    meter_provider: object | None = None
    captures_content: bool | None = None
