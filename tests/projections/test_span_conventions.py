"""Names and types of attributes and metrics: those of the conventions for generative AI.

`span_conventions.json` has the names that mudroom uses, as the model in the conventions' repository
states them. A name that later commits changed says so there.
"""

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader, Metric
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, mcp_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes

from mudroom import TextBlock, Usage
from mudroom._adapters.integrations import tracing
from mudroom._adapters.integrations.tracing.writers import SpanMetrics
from mudroom._core.events import (
    Delta,
    ModelCallRetried,
    RunResumed,
    SessionOpened,
    StoredEvent,
    TurnStarted,
)
from mudroom._core.runs import RequestHead, ToolDescription
from mudroom._projections import spans as span_projection
from mudroom._projections.spans import ContentCapture, SessionSpans, Span
from mudroom._projections.spans.span import split_model
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    turn_events,
    turn_finished,
    turn_started,
)
from mudroom.testing.sample_events import every_event

LIST = json.loads(Path(__file__).with_name("span_conventions.json").read_text())
ATTRIBUTES: dict[str, dict[str, Any]] = LIST["attributes"]
METRICS: dict[str, dict[str, Any]] = LIST["metrics"]
PREFIXES = ("gen_ai.", "mcp.", "error.", "http.", "server.")
OWN_PREFIXES = ("mudroom.", "session.id", "openinference.span.kind")
TYPES = {"string": str, "boolean": bool, "int": int, "any": str, "string[]": tuple}
"""Types of values in spans; a value of the type `any` is JSON there."""


def find_names_in_sources() -> set[str]:
    """Return the texts in the sources of spans and metrics that look like names."""
    names: set[str] = set()
    for package in (tracing, span_projection):
        for path in Path(str(package.__file__)).parent.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = node.value
                    if text.startswith(PREFIXES) and not text.endswith(".") and " " not in text:
                        names.add(text)
    return names


def make_events() -> list[StoredEvent]:
    """Return a session with a value for every attribute that its events can have."""
    parts = {"p": "Be brief.", "t": ToolDescription("read", "reads", {"type": "object"})}
    head = RequestHead("h", system="p", tools=("t",), parts=parts)
    calls = [tool_call("c1", "mcp__quick__add", a=1), tool_call("c2", "bash", command="x")]
    return [
        *every_event(),
        SessionOpened(at=100, session="5f3a", cwd="/w", version="1"),
        run_started("7", prompt="go", at=101),
        RunResumed(at=101, run="7", head=head),
        turn_started("7", 1, at=101),
        ModelCallRetried(at=102, run="7", attempt=1, delay=0.5, status=529),
        turn_finished("7", *calls, turn=1, at=103, usage=Usage(9, 8, 3, 2, 1)),
        *tool_call_events("7", calls[0], "3", at=104),
        *tool_call_events("7", calls[1], "no", error=True, at=105),
        *turn_events("7", TextBlock("done"), turn=2, at=106),
        run_finished("7", text="done", at=107),
    ]


def fold() -> list[Span]:
    """Fold the events, and the parts of an answer that arrive between them."""
    spans = SessionSpans(
        capture=ContentCapture(str), find_server=lambda model: ("models.test", 443)
    )
    ended: list[Span] = []
    for event in make_events():
        ended += spans.apply(event)
        if isinstance(event, TurnStarted):
            spans.apply(Delta(at=event.at + 0.5, run=event.run, kind="text", text="do"))
            spans.apply(Delta(at=event.at + 0.7, run=event.run, kind="text", text="ne"))
    return ended + spans.finish()


def list_attributes(spans: Iterable[Span]) -> list[tuple[str, object]]:
    """Return the attributes of spans and of the events in them."""
    owners = [each.attributes for span in spans for each in (span, *span.events)]
    return [item for attributes in owners for item in attributes.items()]


def check_attribute(name: str, value: object) -> None:
    described = ATTRIBUTES[name]
    assert type(value) is TYPES[described["type"]], (name, value)
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        assert all(isinstance(item, str) for item in items), (name, value)


def test_every_name_in_the_sources_is_in_the_list_and_the_list_has_no_other() -> None:
    assert find_names_in_sources() == {*ATTRIBUTES, *METRICS}


def test_every_attribute_of_a_span_has_the_name_and_type_of_the_conventions() -> None:
    emitted = list_attributes(fold())
    for name, value in emitted:
        if not name.startswith(OWN_PREFIXES):
            check_attribute(name, value)
            if "values" in ATTRIBUTES[name] and name != "gen_ai.provider.name":
                assert value in ATTRIBUTES[name]["values"], (name, value)
    names = {name for name, _ in emitted}
    only_metrics = {"gen_ai.token.type"}
    assert {*ATTRIBUTES} - names == only_metrics


def test_every_metric_has_the_name_unit_and_attributes_of_the_conventions() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics = SpanMetrics(provider)
    for span in fold():
        metrics.record(span)
    data = reader.get_metrics_data()
    assert data
    recorded: list[Metric] = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    provider.shutdown()
    assert {metric.name for metric in recorded} == {*METRICS}
    for metric in recorded:
        assert metric.unit == METRICS[metric.name]["unit"]
        assert METRICS[metric.name]["instrument"] == "histogram"
        assert isinstance(metric.data, Histogram)
        for point in metric.data.data_points:
            assert list(point.explicit_bounds) == METRICS[metric.name]["bounds"]
            for name, value in (point.attributes or {}).items():
                check_attribute(name, value)


@pytest.mark.parametrize(
    "provider",
    [
        "anthropic",
        "azure",
        "bedrock",
        "deepseek",
        "google",
        "google-vertex",
        "groq",
        "mistral",
        "moonshotai",
        "openai",
        "xai",
    ],
)
def test_known_providers_have_the_name_of_the_conventions(provider: str) -> None:
    assert split_model(f"{provider}:m")[0] in ATTRIBUTES["gen_ai.provider.name"]["values"]


def test_the_list_agrees_with_the_constants_of_the_published_package() -> None:
    """The package is older than the list: it may lack names, and it names what it dropped."""
    constants = {
        value
        for module in (
            gen_ai_attributes,
            mcp_attributes,
            error_attributes,
            http_attributes,
            server_attributes,
        )
        for value in vars(module).values()
        if isinstance(value, str)
    }
    assert {*ATTRIBUTES} <= constants
