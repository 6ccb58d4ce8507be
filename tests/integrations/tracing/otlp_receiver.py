"""A receiver of OTLP/HTTP on loopback: decodes what it gets."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver:
    """Spans and metrics that arrived, and the headers of the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.metrics: list[Metric] = []
        self.services: set[str] = set()
        self.headers: list[Mapping[str, str]] = []
        self.status = 200
        self.may_answer = asyncio.Event()
        """Answers are sent while it is set."""
        self.may_answer.set()

    async def receive_traces(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        await self.may_answer.wait()
        if self.status != 200:
            return web.Response(status=self.status)
        decoded = ExportTraceServiceRequest.FromString(await _read(request))
        for resource_spans in decoded.resource_spans:
            names = {item.key: item.value for item in resource_spans.resource.attributes}
            self.services.add(names["service.name"].string_value)
            for scope_spans in resource_spans.scope_spans:
                self.spans += scope_spans.spans
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")

    async def receive_metrics(self, request: web.Request) -> web.Response:
        decoded = ExportMetricsServiceRequest.FromString(await _read(request))
        for resource_metrics in decoded.resource_metrics:
            for scope_metrics in resource_metrics.scope_metrics:
                self.metrics += scope_metrics.metrics
        return web.Response()


async def _read(request: web.Request) -> bytes:
    data = await request.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


@asynccontextmanager
async def receive_otlp() -> AsyncGenerator[OtlpReceiver]:
    receiver = OtlpReceiver()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/traces", receiver.receive_traces)
    app.router.add_post("/v1/metrics", receiver.receive_metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def get_attributes(span: Span) -> dict[str, object]:
    """Return the attributes of a received span with plain values."""
    values: dict[str, object] = {}
    for item in span.attributes:
        kind = item.value.WhichOneof("value")
        assert kind, item.key
        value = getattr(item.value, kind)
        if kind == "array_value":
            value = tuple(each.string_value for each in value.values)
        values[item.key] = value
    return values
