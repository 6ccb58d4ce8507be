"""The variables of OpenTelemetry that decide whether and where traces are sent."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
METRICS_ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
INSTALL_COMMAND = "pip install 'mudroom[tracing]'"

_DEFAULT_ENDPOINT = "http://localhost:4318"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OUR_PROTOCOL = "http/protobuf"
_WITH_CONTENT = ("true", "1", "span_only", "span_and_event")
_WITHOUT_CONTENT = ("", "false", "0", "no_content")


def has_address(environ: Mapping[str, str]) -> bool:
    """Return whether the variables name an address for traces."""
    return bool(environ.get(ENDPOINT) or environ.get(TRACES_ENDPOINT))


def is_installed() -> bool:
    """Return whether the packages of the extra are installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:
        return False


def explain_off(environ: Mapping[str, str]) -> str:
    """Return which variable turns traces off, "" if none does."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporters and "otlp" not in exporters.split(","):
        return f"OTEL_TRACES_EXPORTER is {exporters}, and mudroom has only otlp"
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _OUR_PROTOCOL)
    if protocol != _OUR_PROTOCOL:
        return f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and mudroom has only {_OUR_PROTOCOL}"
    return ""


def has_metrics(environ: Mapping[str, str]) -> bool:
    """Return whether metrics are sent."""
    exporters = environ.get("OTEL_METRICS_EXPORTER", "otlp").strip()
    is_wanted = not exporters or "otlp" in exporters.split(",")
    return is_wanted and bool(environ.get(ENDPOINT) or environ.get(METRICS_ENDPOINT))


def read_content_switch(environ: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether spans have texts, and a notice about a value that is not used, or ""."""
    value = environ.get(CONTENT, "").strip().lower()
    if value in _WITH_CONTENT:
        return True, ""
    if value in _WITHOUT_CONTENT:
        return False, ""
    return False, f"{CONTENT}={value} is not used. Use span_only for texts in spans."


def find_address(environ: Mapping[str, str], own: str = TRACES_ENDPOINT) -> str:
    """Return the address of traces without its user, password and query.

    Arguments:
        own: variable with the whole address of this kind of data.
    """
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
