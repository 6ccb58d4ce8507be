"""Traces of the command line: --trace, the variables, export --format otel, doctor."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from ..integrations.tracing.otlp_receiver import receive_otlp


async def run_mudroom(folder: Path, *words: str, **environ: str) -> tuple[int, str]:
    """Run a command; return its exit code and its messages."""
    names = ("PATH", "PYTHONPATH")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    state = {"HOME": str(folder), "MUDROOM_HOME": str(folder / "home")}
    program = """if True:
        import atexit, sys
        find = lambda: [name for name in sys.modules if name.startswith("opentelemetry")]
        atexit.register(lambda: print("imported:", find(), file=sys.stderr))
        from mudroom.cli.main import main
        sys.exit(main())
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *words),
        cwd=folder,
        env={**inherited, **state, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, messages = await process.communicate()
    return process.returncode or 0, messages.decode()


PROMPT = (
    "-p",
    "Hello",
    "--model",
    "offline",
    "--session-id",
    "5f3a1c1e-0000-4000-8000-000000000001",
)


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


async def test_without_an_address_no_package_is_imported(tmp_path: Path) -> None:
    code, messages = await run_mudroom(tmp_path, *PROMPT)
    assert code == 0
    assert "imported: []" in messages


async def test_a_server_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    code, messages = await run_mudroom(tmp_path, *PROMPT, "--trace", **environ)
    assert code == 0
    assert messages.count("127.0.0.1:1") == 1
    assert "Traces are not delivered: no connection (http://127.0.0.1:1/v1/traces)" in messages
    code, messages = await run_mudroom(
        tmp_path, "export", "--format", "otel", OTEL_EXPORTER_OTLP_TIMEOUT="1", **environ
    )
    assert code == 2
    assert "the traces were not delivered: no connection" in messages
