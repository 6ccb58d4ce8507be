"""Traces of real sessions: at an OTLP receiver on loopback, and in providers of the caller."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mudroom import Integrations, Permissions, Session
from mudroom._adapters.integrations.tracing import writers
from mudroom._adapters.integrations.tracing.writers import send_spans
from mudroom._projections.spans import ContentCapture, SessionSpans, Span
from mudroom.errors import UsageError
from mudroom.events import StoredEvent
from mudroom.permissions.rules import Rule, Verdict
from mudroom.testing import Answer, MemoryStore, Request, ScriptedModel, call
from mudroom.tracing import Tracing

from ...waiting import wait_until
from ..mcp_servers.servers import make_quick, read_log
from .otlp_receiver import OtlpReceiver, get_attributes, receive_otlp

OUTER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OTEL_") or name == "TRACEPARENT":
            monkeypatch.delenv(name)


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[OtlpReceiver]:
    async with receive_otlp() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


def answer(request: Request) -> Answer:
    """Start two children and a command; a child reads a file."""
    if request.results:
        return "done"
    if request.prompt == "look":
        return [call("read", file_path="absent.txt")]
    task = {"prompt": "look", "agent": "explore", "description": "look around"}
    return [call("task", **task), call("task", **task), call("bash", command="echo $TRACEPARENT")]


def open_session(folder: Path, script: Any = answer, **more: Any) -> Session:
    options: dict[str, Any] = {"store": MemoryStore(), "environ": {}}
    options["integrations"] = Integrations(tracing=Tracing())
    return Session(
        model=ScriptedModel(script),
        cwd=str(folder),
        home=str(folder / "home"),
        sandbox="off",
        **(options | more),
    )


async def read_events(store: MemoryStore) -> list[StoredEvent]:
    (info,) = await store.list()
    journal = await store.open(info.id, read_only=True)
    return [event async for event in journal.read()]


def simplify(span: Span) -> dict[str, object]:
    return {
        "trace": f"{span.context.trace_id:032x}",
        "id": f"{span.context.span_id:016x}",
        "parent": f"{span.parent_id:016x}" if span.parent_id else "",
        "name": span.name,
        "start": int(span.started_at * 1e9),
        "end": int(span.ended_at * 1e9),
        "failed": span.has_failed,
        "attributes": span.attributes,
        "links": [f"{link.span_id:016x}" for link in span.links],
    }


def simplify_received(receiver: OtlpReceiver) -> list[dict[str, object]]:
    return [
        {
            "trace": span.trace_id.hex(),
            "id": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "name": span.name,
            "start": span.start_time_unix_nano,
            "end": span.end_time_unix_nano,
            "failed": span.status.code == 2,
            "attributes": get_attributes(span),
            "links": [link.span_id.hex() for link in span.links],
        }
        for span in receiver.spans
    ]


def by_id(spans: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(spans, key=lambda span: str(span["id"]))


async def test_live_spans_are_those_of_the_journal(tmp_path: Path, receiver: OtlpReceiver) -> None:
    store = MemoryStore()
    async with open_session(
        tmp_path, store=store, integrations=Integrations(tracing=Tracing(captures_content=True))
    ) as session:
        assert (await session.run("go")).ok
        assert (await session.run("go on")).ok
        await asyncio.gather(session.task("look"), session.task("look"))
    later = SessionSpans(capture=ContentCapture(str)).apply_all(await read_events(store))
    received = simplify_received(receiver)
    assert by_id(received) == by_id([simplify(span) for span in later])
    assert receiver.services == {"mudroom"}
    assert len({span["trace"] for span in received}) == 4


async def test_commands_know_the_span_of_their_call(tmp_path: Path, receiver: OtlpReceiver) -> None:
    outputs: list[str] = []

    def answer(request: Request) -> Answer:
        outputs.extend(result.text for result in request.results)
        command = "echo $TRACEPARENT\nfalse ||\n  (exit 0)"
        return "done" if request.results else [call("bash", command=command)]

    environ = {"TRACEPARENT": OUTER, "PATH": os.environ["PATH"]}
    async with open_session(tmp_path, answer, environ=environ) as session:
        await session.run("go")
    (bash,) = [span for span in receiver.spans if span.name == "execute_tool bash"]
    assert outputs == [f"00-{bash.trace_id.hex()}-{bash.span_id.hex()}-01"]
    (run,) = [span for span in receiver.spans if span.name == "invoke_agent main"]
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == tuple(OUTER.split("-")[1:3])


async def test_commands_of_worker_processes_know_the_span_of_their_call(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    def answer(request: Request) -> Answer:
        if request.results:
            return "done"
        if request.prompt == "child":
            return [call("bash", command="echo $TRACEPARENT > traceparent.txt")]
        return [call("task", prompt="child", agent="general")]

    async with open_session(tmp_path, answer, worker="process:1", environ=None) as session:
        assert (await session.run("go")).ok
    (bash,) = [span for span in receiver.spans if span.name == "execute_tool bash"]
    text = (tmp_path / "traceparent.txt").read_text()
    assert text == f"00-{bash.trace_id.hex()}-{bash.span_id.hex()}-01\n"
    (task,) = [span for span in receiver.spans if span.name == "execute_tool task"]
    (child,) = [span for span in receiver.spans if span.name == "invoke_agent general"]
    assert child.parent_span_id == task.span_id


async def test_mcp_servers_get_the_span_of_the_call(tmp_path: Path, receiver: OtlpReceiver) -> None:
    script: list[Answer] = [
        [call("mcp_find", query="add numbers")],
        [call("mcp_call", tool="mcp__quick__add", arguments={"a": 1, "b": 2})],
        "done",
    ]

    def answer(request: Request) -> Answer:
        return script[request.turn]

    log = tmp_path / "log"
    async with open_session(
        tmp_path,
        answer,
        integrations=Integrations(tracing=Tracing(), mcp_servers=[make_quick(log=log)]),
        permissions=Permissions(rules=(Rule(Verdict.ALLOW, "mcp__quick__add"),)),
    ) as session:
        await session.run("go")
    (span,) = [span for span in receiver.spans if span.name == "execute_tool mcp__quick__add"]
    assert get_attributes(span)["mcp.method.name"] == "tools/call"
    (line,) = [line for line in read_log(log) if line.startswith("traceparent")]
    assert line == f"traceparent 00-{span.trace_id.hex()}-{span.span_id.hex()}-01"


async def test_metrics_have_the_tokens_and_durations(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    async with open_session(tmp_path) as session:
        report = await session.run("go")
    metrics = {metric.name: metric for metric in receiver.metrics}
    points = metrics["gen_ai.client.token.usage"].histogram.data_points
    assert sum(point.sum for point in points) == report.usage.total_tokens
    kinds = {item.value.string_value for point in points for item in point.attributes}
    assert {"input", "output", "chat", "scripted"} <= kinds
    names = ["gen_ai.client.operation.duration", "gen_ai.invoke_agent.duration"]
    counts = [sum(each.count for each in metrics[name].histogram.data_points) for name in names]
    assert counts == [6, 3]
    first = metrics["gen_ai.client.operation.time_to_first_chunk"].histogram.data_points
    assert sum(point.count for point in first) == 3  # those whose answer is text


async def test_the_callers_provider_gets_the_spans_below_its_own(tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    tracing = Tracing(provider=provider, meter_provider=meters)
    with provider.get_tracer("app").start_as_current_span("request") as outer:
        async with (
            open_session(tmp_path, integrations=Integrations(tracing=tracing)) as first,
            open_session(tmp_path, integrations=Integrations(tracing=tracing)) as second,
        ):
            await asyncio.gather(first.run("go"), second.run("go"))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    context = outer.get_span_context()
    run = spans["invoke_agent main"]
    assert run.parent and run.parent.span_id == context.span_id
    assert {span.context.trace_id for span in spans.values() if span.context} == {context.trace_id}
    ids = [span.context.span_id for span in exporter.get_finished_spans() if span.context]
    assert len(ids) == len(set(ids)) == 1 + 2 * 14
    assert reader.get_metrics_data()
    provider.shutdown()
    meters.shutdown()


async def test_a_provider_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Give a TracerProvider"):
        async with open_session(
            tmp_path,
            integrations=Integrations(tracing=Tracing(provider=trace.NoOpTracerProvider())),
        ):
            pass
    with pytest.raises(UsageError, match="Give a MeterProvider"):
        tracing = Tracing(provider=TracerProvider(shutdown_on_exit=False), meter_provider=object())
        async with open_session(tmp_path, integrations=Integrations(tracing=tracing)):
            pass


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("OTEL_TRACES_SAMPLER", "always_off", 0),
        ("OTEL_TRACES_SAMPLER_ARG", "1.0", 14),
        ("OTEL_TRACES_SAMPLER_ARG", "0.0", 0),
        ("TRACEPARENT", OUTER[:-2] + "00", 0),
    ],
)
async def test_all_spans_of_a_trace_are_sampled_or_none(
    name: str,
    value: str,
    count: int,
    tmp_path: Path,
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name.endswith("ARG"):
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv(name, value)
    async with open_session(tmp_path, environ=None) as session:
        await session.run("go")
    assert len(receiver.spans) == count


@pytest.mark.parametrize(
    ("name", "value", "notice"),
    [
        ("OTEL_SDK_DISABLED", "true", "OTEL_SDK_DISABLED is true"),
        ("OTEL_TRACES_EXPORTER", "none", "OTEL_TRACES_EXPORTER is none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "mudroom has only http/protobuf"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "MAX_QUEUE_SIZE is many, not a whole number above 0"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE is 512, more than"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0", "BATCH_SIZE is 0, not a whole number above 0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1", "SCHEDULE_DELAY is -1, not a whole number above 0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "", "SCHEDULE_DELAY is empty, not a whole number above 0"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "INTERVAL is 0, not a whole number above 0"),
    ],
)
async def test_variables_that_turn_traces_off_are_told(
    name: str,
    value: str,
    notice: str,
    tmp_path: Path,
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(name, value)
    async with open_session(tmp_path) as session:
        await session.run("go")
        assert any(notice in text for text in map(str, session.notices)), session.notices
    assert not receiver.headers


async def test_values_that_are_not_used_are_told(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "event_only")
    async with open_session(tmp_path, environ={"TRACEPARENT": "wrong"}) as session:
        await session.run("go")
        text = " ".join(map(str, session.notices))
    assert "CAPTURE_MESSAGE_CONTENT=event_only is not used" in text
    assert "TRACEPARENT is not used" in text
    assert "gen_ai.input.messages" not in {
        name for span in receiver.spans for name in get_attributes(span)
    }


async def test_the_variable_for_content_adds_texts(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only")
    async with open_session(tmp_path) as session:
        await session.run("go")
    run = next(span for span in receiver.spans if span.name == "invoke_agent main")
    attributes = get_attributes(run)
    assert "mudroom" in str(attributes["gen_ai.system_instructions"])
    assert '"name":"task"' in str(attributes["gen_ai.tool.definitions"])


def list_threads() -> list[str]:
    """Return the threads of traces: those of the SDK, and the one that ends them."""
    names = ("mudroom-traces", "OtelBatchSpan", "OtelPeriodic")
    return [each.name for each in threading.enumerate() if each.name.startswith(names)]


SECRET = "s3cr3t-value-of-a-header"


def break_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:{SECRET}@127.0.0.1:1")


def break_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=%0A{SECRET},{SECRET}")


@pytest.mark.parametrize(
    ("damage", "status", "reason"),
    [
        (break_port, 200, "no connection (http://127.0.0.1:1/v1/traces)"),
        (break_header, 401, ""),
        (None, 401, "HTTP status 401"),
        (None, 404, "HTTP status 404"),
        (None, 503, "the server is busy"),
    ],
)
async def test_a_collector_that_fails_costs_one_line_without_secrets(
    damage: Any,
    status: int,
    reason: str,
    tmp_path: Path,
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    receiver.status = status
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{SECRET}")
    if damage:
        damage(monkeypatch)
    monkeypatch.setattr(writers, "SILENT_SECONDS", 0.5)
    caplog.set_level(logging.DEBUG)
    async with open_session(tmp_path) as session:
        assert (await session.run("go")).ok
        started_at = time.monotonic()
    assert time.monotonic() - started_at < 6  # half a second, and a busy machine
    lines = [record.getMessage() for record in caplog.records if record.name == "mudroom"]
    assert len(lines) == 1
    assert reason in lines[0]
    assert f"mudroom export --format otel {session.id}" in lines[0]
    assert SECRET not in caplog.text + "".join(capfd.readouterr())
    if damage is None:
        assert receiver.headers[0]["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("silent", ["both", "metrics"])
async def test_a_collector_that_never_answers_costs_two_seconds(
    silent: str,
    tmp_path: Path,
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    name = "OTEL_EXPORTER_OTLP_ENDPOINT"
    if silent == "metrics":
        name = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
    monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "4")
    async with open_session(tmp_path) as session:
        await session.run("go")
        started_at = time.monotonic()
    assert 1.5 < time.monotonic() - started_at < 6
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mudroom"]
    assert "no answer within 2 s" in line
    assert ("metrics: " in line) == (silent == "metrics")
    assert len(receiver.spans) == (14 if silent == "metrics" else 0)
    server.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    await wait_until(lambda: not list_threads())


async def test_spans_that_find_no_room_are_counted_in_one_line(
    tmp_path: Path,
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "5")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
    receiver.may_answer.clear()
    async with open_session(tmp_path) as session:
        await session.run("go")
        assert len(receiver.spans) < 14
        receiver.may_answer.set()
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{14 - len(receiver.spans)} spans waited too long and were dropped" in line


async def test_a_variable_that_the_sdk_refuses_is_named(
    tmp_path: Path,
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")
    async with open_session(tmp_path) as session:
        assert (await session.run("go")).ok
    (line,) = [record.getMessage() for record in caplog.records]
    assert "not delivered: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be" in line
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be" in send_spans([])
    assert not receiver.headers


async def test_the_variables_of_the_batch_processor_apply(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    async with open_session(tmp_path) as session:
        await session.run("go")
        await wait_until(lambda: len(receiver.spans) == 14)
    assert len(receiver.headers) >= 1


async def test_a_processor_of_the_caller_that_fails_costs_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise OSError(SECRET)

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    async with open_session(
        tmp_path, integrations=Integrations(tracing=Tracing(provider=provider))
    ) as session:
        assert (await session.run("go")).ok
    (line,) = [record.getMessage() for record in caplog.records]
    assert "Traces are not delivered: OSError" in line and SECRET not in caplog.text


CHILDREN = 700
"""Enough for more spans than the queue of the SDK takes, 2,048."""


async def test_more_spans_than_wait_at_once_are_all_delivered(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    def answer(request: Request) -> Answer:
        if request.results or request.prompt == "x":
            return "done"
        return [call("task", prompt="x", agent="explore") for _ in range(CHILDREN)]

    async with open_session(tmp_path, answer) as session:
        report = await session.run("go")
        await wait_until(lambda: len(receiver.spans) >= 3 + 3 * CHILDREN)  # the end waits only 2 s
    spans = receiver.spans
    assert len(spans) == len({span.span_id for span in spans}) == 3 + 3 * CHILDREN
    assert len({span.trace_id for span in spans}) == 1
    used = [get_attributes(span) for span in spans if span.name == "chat model"]
    total = sum(int(str(each["gen_ai.usage.input_tokens"])) for each in used)
    assert total == report.usage.input_tokens
