"""Metrics of model calls, tool calls and runs, computed from their spans."""

from __future__ import annotations

from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider

from ...._projections.spans import Span
from ...._version import __version__
from ....errors import UsageError
from .emitter import SCOPE

_SHARED = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type")
_KEYS = {
    "chat": (*_SHARED, "gen_ai.response.model"),
    "execute_tool": ("gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.type", "error.type"),
    "invoke_agent": (*_SHARED, "gen_ai.agent.name"),
}
"""Attributes of metrics, by operation."""
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
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of model calls"
        )
        self._durations = {
            "chat": meter.create_histogram(
                "gen_ai.client.operation.duration", "s", "Duration of model calls"
            ),
            "execute_tool": meter.create_histogram(
                "gen_ai.execute_tool.duration", "s", "Duration of tool calls"
            ),
            "invoke_agent": meter.create_histogram(
                "gen_ai.invoke_agent.duration", "s", "Duration of runs"
            ),
        }

    def record(self, span: Span) -> None:
        """Add a span to the metrics."""
        operation = str(span.attributes["gen_ai.operation.name"])
        keys = _KEYS[operation]
        attributes = {key: span.attributes[key] for key in keys if key in span.attributes}
        self._durations[operation].record(span.ended_at - span.started_at, attributes)
        if operation != "chat":
            return
        for kind, name in _TOKENS.items():
            tokens = span.attributes.get(name)
            if isinstance(tokens, int) and tokens:
                self._tokens.record(tokens, {**attributes, "gen_ai.token.type": kind})
