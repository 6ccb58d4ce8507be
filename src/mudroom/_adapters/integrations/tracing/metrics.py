"""Metrics of model calls, tool calls and runs, computed from their spans."""

from __future__ import annotations

from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider

from ...._projections.spans import Span
from ...._version import __version__
from ....errors import UsageError
from .emitter import SCOPE

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
"""Bounds of the buckets, as the conventions ask for them. With the SDK's own, which begin at 0, 5
and 10 and end at 10,000, most durations share one bucket and most contexts another."""
_TOKENS = {"input": "gen_ai.usage.input_tokens", "output": "gen_ai.usage.output_tokens"}


class SpanMetrics:
    """Recorder of metrics to a MeterProvider."""

    def __init__(self, provider: object) -> None:
        """Raise UsageError for a provider that is not one of OpenTelemetry."""
        if not isinstance(provider, MeterProvider | SdkMeterProvider):
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
        """Add a span to the metrics."""
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
