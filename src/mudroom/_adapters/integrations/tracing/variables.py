"""OpenTelemetry's variables that decide whether and where traces are sent."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

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
_DEFAULT_BATCH_SIZE = 512  # as in the SDK
_DEFAULT_ENDPOINT = "http://localhost:4318"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OUR_PROTOCOL = "http/protobuf"
_WITH_CONTENT = ("true", "1", "span_only", "span_and_event")
_WITHOUT_CONTENT = ("", "false", "0", "no_content")


def has_address(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(ENDPOINT) or environ.get(TRACES_ENDPOINT))


def is_installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:
        return False


def explain_off(environ: Mapping[str, str]) -> str:
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
    """Read how many spans may wait to be sent. The variables must have passed `explain_off`."""
    return int(environ.get(_QUEUE_SIZE, _DEFAULT_QUEUE_SIZE))


def describe_error(error: Exception) -> str:
    # Texts that do not begin with a variable may contain addresses or headers with secrets.
    text = str(error)
    return text if text.startswith("OTEL_") else type(error).__name__


def has_metrics(environ: Mapping[str, str]) -> bool:
    exporters = environ.get("OTEL_METRICS_EXPORTER", "otlp").strip()
    is_wanted = not exporters or "otlp" in exporters.split(",")
    return is_wanted and bool(environ.get(ENDPOINT) or environ.get(METRICS_ENDPOINT))


def read_content_switch(environ: Mapping[str, str]) -> tuple[bool, str]:
    value = environ.get(CONTENT, "").strip().lower()
    if value in _WITH_CONTENT:
        return True, ""
    if value in _WITHOUT_CONTENT:
        return False, ""
    return False, f"{CONTENT}={value} is not used. Use span_only for texts in spans."


def find_address(environ: Mapping[str, str], own: str = TRACES_ENDPOINT) -> str:
    """Find the address for traces or metrics, without user, password and query."""
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
