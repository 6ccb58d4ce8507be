"""Streams that are cut, reset, ended early or stalled at any byte: calls run once, one retry.

The short form stops at some bytes of the answer, MUDROOM_LONG=1 at each of them.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from mudroom import AnyEvent, Report, TextBlock, ToolCallBlock, ToolResult
from mudroom._core.events import ModelCallRetried, ToolCallStarted, TurnFinished
from mudroom._core.messages import StopReason, Usage
from mudroom.testing import wire_formats
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.provider_faults import DIALECTS
from mudroom.testing.strict_provider import strict_script
from mudroom.testing.wire_formats import WireAnswer

from .conftest import CheckRecord, Figure
from .killed import LONG
from .providers import MODELS, open_session
from .recorded import make_tool

ANSWER = (
    TextBlock("I act on it now. 现在。"),
    ToolCallBlock("c1", "act", {"much": "a long argument"}),
    ToolCallBlock("c2", "act", {"much": "另一个"}),
)
STREAMS = {
    "anthropic": wire_formats.anthropic_stream,
    "openai": wire_formats.openai_stream,
    "openai-responses": wire_formats.responses_stream,
    "google": wire_formats.google_stream,
    "ollama": wire_formats.ollama_stream,
}


def measure_answer(dialect: str) -> int:
    """Return the number of bytes of the streamed answer."""
    reply = WireAnswer(
        ANSWER, MODELS[dialect].partition(":")[2], "msg_1", Usage(100, 10), StopReason.CALLS
    )
    return len(b"".join(STREAMS[dialect](reply)))


async def run_session(
    folder: Path, dialect: str, fault: Fault
) -> tuple[Report, int, list[AnyEvent], int]:
    """Run a session whose first answer breaks.

    Returns its report, the number of requests, the events and the number of tool executions.
    """
    executions, events = 0, list[AnyEvent]()

    async def run(_context: object, _arguments: object) -> ToolResult:
        nonlocal executions
        executions += 1
        assert any(isinstance(event, TurnFinished) for event in events), (
            "a call ran before its message had ended"
        )
        return ToolResult("done")

    def answer(request: ServerRequest) -> ServerAnswer:
        return fault if request.number == 1 else "The end." if request.turn else ANSWER

    tool = make_tool("act", run)
    async with ModelServer(strict_script(answer)) as server:
        async with open_session(folder, server, MODELS[dialect], tools=[tool]) as session:
            session.watch(events.append)
            report = await session.run("PARENT")
        return report, server.request_count, events, executions


@pytest.mark.timeout(5_000)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_f9_a_stream_that_breaks_at_any_byte_is_requested_once_more(
    tmp_path: Path, dialect: str, figure: Figure, check_record: CheckRecord
) -> None:
    whole = measure_answer(dialect)
    cuts = range(0, whole - 20, 1 if LONG else whole // 6)
    for cut, end in itertools.product(cuts, ("close", "reset", "eof", "stall")):
        where = f"{end} at byte {cut}"
        report, requests, events, executions = run_virtual(
            run_session(tmp_path, dialect, Fault(ANSWER, cut_after=cut, end=end)), grace=0
        )
        assert (report.reason, report.text, executions) == ("GOAL", "The end.", 2), (
            f"{where}: {report.error}"
        )
        retried = sum(isinstance(event, ModelCallRetried) for event in events)
        assert requests == 2 + retried and retried <= 1, where
        started = sum(isinstance(event, ToolCallStarted) for event in events)
        assert (report.turns, started) == (2, 2)
        asyncio.run(check_record(events, timed=False, where=where))
    figure(
        f"a stream of {dialect} closed, reset, ended and stalled",
        f"at {len(cuts):,} of {whole:,} bytes, one retry at most",
    )
