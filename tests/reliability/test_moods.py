"""Faults of a provider on every wire: the run ends in a typed outcome, the session continues.

A fault below the wire, such as a status or a cut connection, has one wire in the short form.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason, Report, ToolCallBlock
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.provider_faults import DIALECTS, FaultCase, fault_cases
from mudroom.testing.strict_provider import strict_script

from .conftest import CheckRecord
from .providers import MODELS, open_session

FAULTS = {dialect: fault_cases(dialect) for dialect in DIALECTS}
"""Made once: it takes as long as a test."""


def is_below_the_wire(name: str, case: FaultCase) -> bool:
    """Return whether a fault is none of the format of an answer; `test_streams.py` cuts each."""
    fault = case.answers[0]
    is_status = isinstance(fault, Fault) and fault.status != 200
    return is_status or name.startswith(("close after", "reset", "eof", "10 MB"))


CASES = [
    (dialect, name)
    for place, dialect in enumerate(DIALECTS)
    for number, (name, case) in enumerate(FAULTS[dialect].items())
    if os.environ.get("MUDROOM_LONG")
    or number % len(DIALECTS) == place
    or not is_below_the_wire(name, case)
]


class FaultyServer:
    """A server that fails for the first prompt and works for the second."""

    def __init__(self, fault: FaultCase) -> None:
        self.fault, self.events = fault, list[AnyEvent]()
        self.prompt, self.called = 1, False

    def answer(self, request: ServerRequest) -> ServerAnswer:
        if self.prompt == 2:
            if self.called:
                return "I continue."
            self.called = True
            return (ToolCallBlock("c", "todo", {"todos": []}),)
        if request.number > len(self.fault.answers):
            return "It works again."
        return self.fault.answers[request.number - 1]

    async def run_session(self, folder: Path, dialect: str) -> tuple[Report, Report, int]:
        async with (
            ModelServer(strict_script(self.answer)) as server,
            open_session(folder, server, MODELS[dialect], key="sk-planted") as session,
        ):
            session.watch(self.events.append)
            first, requests = await session.run("PARENT"), server.request_count
            self.prompt = 2
            await asyncio.sleep(4000)
            return first, await session.run("Again."), requests


@pytest.mark.parametrize(("dialect", "name"), CASES, ids=lambda part: part)
def test_s7_a_fault_ends_in_a_typed_outcome_and_the_session_continues(
    tmp_path: Path, dialect: str, name: str, check_record: CheckRecord
) -> None:
    fault = FAULTS[dialect][name]
    server_script = FaultyServer(fault)
    report, after, requests = run_virtual(server_script.run_session(tmp_path, dialect))
    assert after.reason is Reason.GOAL and after.text == "I continue.", after.error
    names = [type(event).__name__ for event in server_script.events]
    assert report.reason is fault.reason, (report.error, names)
    assert "sk-planted" not in report.error and "Traceback" not in report.error
    if fault.reason is Reason.GOAL:
        assert report.text.startswith(fault.text) and not report.error
    else:
        assert fault.error in report.error and report.error
    assert fault.requests is None or requests == fault.requests
    asyncio.run(check_record(server_script.events, timed=False))
