"""Traces of the command line: --trace, the variables, export --format otel, doctor."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from mudroom._cli.actions.doctor import run_checks

from ..integrations.tracing.otlp_receiver import receive_otlp


async def run_mudroom(folder: Path, *words: str, **environ: str) -> tuple[int, str]:
    """Run a command; return its exit code and its messages."""
    return await run_program(
        folder, "from mudroom._cli.main import main\nsys.exit(main())", *words, **environ
    )


async def run_program(folder: Path, program: str, *words: str, **environ: str) -> tuple[int, str]:
    """Run a program that ends with a message about the imported modules of traces."""
    names = ("PATH", "PYTHONPATH")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    state = {"HOME": str(folder), "MUDROOM_HOME": str(folder / "home")}
    watch = """
import atexit, sys
parts = ("opentelemetry", "mudroom._adapters.integrations.tracing.", "mudroom._projections.spans")
find = lambda: sorted(name for name in sys.modules if name.startswith(parts))
atexit.register(lambda: print("imported:", find(), file=sys.stderr))
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", watch + program, *words),
        cwd=folder,
        env={**inherited, **state, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, messages = await process.communicate()
    return process.returncode or 0, messages.decode()


SESSION = "5f3a1c1e-0000-4000-8000-000000000001"
PROMPT = ("-p", "Hello", "--model", "offline", "--session-id", SESSION)


async def test_a_live_session_and_its_export_have_the_same_spans(tmp_path: Path) -> None:
    async with receive_otlp() as receiver:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        code, messages = await run_mudroom(tmp_path, *PROMPT, **environ)
        assert code == 0, messages
        live = {span.span_id: span for span in receiver.spans}
        assert live
        receiver.spans.clear()
        code, messages = await run_mudroom(tmp_path, "export", "--format", "otel", **environ)
        assert code == 0 and f"{len(live)} spans sent to {receiver.url}/v1/traces" in messages
        assert {span.span_id: span for span in receiver.spans} == live
        _, messages = await run_mudroom(
            tmp_path, "export", "--format", "otel", "-o", "x", **environ
        )
        assert "--format otel sends the spans" in messages


async def test_without_an_address_a_program_imports_no_module_of_traces(tmp_path: Path) -> None:
    program = """
import asyncio
from mudroom import Session
async def main():
    async with Session(model="offline") as session:
        await session.run("Hello")
asyncio.run(main())"""
    code, messages = await run_program(tmp_path, program)
    assert code == 0, messages
    assert "imported: ['mudroom._adapters.integrations.tracing.spec']" in messages


async def test_a_server_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    code, messages = await run_mudroom(tmp_path, *PROMPT, "--trace", **environ)
    assert code == 0
    assert messages.count("127.0.0.1:1") == 1
    # The modules of traces are those that the test about imports looks for.
    for name in ("opentelemetry.sdk.trace", "mudroom._projections.spans", "session_tracing"):
        assert name in messages
    assert "Traces are not delivered: no connection (http://127.0.0.1:1/v1/traces)" in messages
    code, messages = await run_mudroom(
        tmp_path, "export", "--format", "otel", OTEL_EXPORTER_OTLP_TIMEOUT="0.5", **environ
    )
    assert code == 2
    assert "the traces were not delivered: no connection, or the server is busy" in messages


ADDRESS = "http://user:s3cr3t@127.0.0.1:4318"


@pytest.mark.parametrize(
    ("environ", "row"),
    [
        ({}, None),
        ({"OTEL_SERVICE_NAME": "x"}, None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ADDRESS},
            ("ok", "exported to http://127.0.0.1:4318/v1/traces", ""),
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{ADDRESS}/own?token=s3cr3t"},
            ("ok", "exported to http://127.0.0.1:4318/own", ""),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ADDRESS, "OTEL_SDK_DISABLED": "true"},
            ("warn", "not exported: OTEL_SDK_DISABLED is true", "Unset that variable."),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ADDRESS, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            (
                "warn",
                "not exported: OTEL_EXPORTER_OTLP_PROTOCOL is grpc,"
                " and mudroom has only http/protobuf",
                "Unset that variable.",
            ),
        ),
    ],
)
def test_doctor_says_where_traces_go(
    environ: dict[str, str],
    row: tuple[str, str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    set_variables(monkeypatch, environ)
    assert find_doctor_row(tmp_path, monkeypatch) == row


def test_doctor_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages, of which the test hides the exporter, nothing is exported."""
    set_variables(monkeypatch, {"OTEL_EXPORTER_OTLP_ENDPOINT": ADDRESS})
    for name in ("http", "http.trace_exporter"):  # the second one, if it was imported before
        monkeypatch.setitem(sys.modules, f"opentelemetry.exporter.otlp.proto.{name}", None)
    assert find_doctor_row(tmp_path, monkeypatch) == (
        "warn",
        "an address is set, and the packages are not installed",
        "Install them: pip install 'mudroom[tracing]'",
    )


def set_variables(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """Set variables of OpenTelemetry, and no others."""
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def find_doctor_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str] | None:
    """Return state, result and remedy of the row about traces; None if there is none."""
    monkeypatch.setenv("MUDROOM_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)
    rows = [
        check for check in run_checks(os.environ, starts_servers=False) if check.name == "traces"
    ]
    return (rows[0].state, rows[0].result, rows[0].remedy) if rows else None
