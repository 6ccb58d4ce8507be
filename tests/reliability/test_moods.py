"""Faults of a provider on every wire: the run ends in a typed outcome, the session continues."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason, Report, Session, ToolCallBlock
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.provider_faults import DIALECTS, FaultCase, fault_cases
from mudroom.testing.strict_provider import strict_script

from .conftest import CheckRecord

FAULTS = {dialect: fault_cases(dialect) for dialect in DIALECTS}
"""Made once: it takes as long as a test."""
CASES = [(dialect, name) for dialect in DIALECTS for name in FAULTS[dialect]]
MODELS = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "openai": "openai:gpt-5",
    "openai-responses": "openai-responses:gpt-5",
    "google": "google:gemini-flash-latest",
    "ollama": "ollama:qwen3",
}


def make_environ(url: str) -> dict[str, str]:
    names = {"ANTHROPIC": url, "OPENAI": f"{url}/v1", "GEMINI": f"{url}/v1beta", "OLLAMA": url}
    return {f"{name}_API_KEY": "sk-planted" for name in names} | {
        f"{name}_BASE_URL": at for name, at in names.items()
    }


class FaultyServer:
    """A server that fails for the first prompt and works for the second."""

    def __init__(self, fault: FaultCase) -> None:
        self.fault, self.events = fault, list[AnyEvent]()
        self.prompt, self.called = 1, False

    def call(self) -> ServerAnswer:
        self.called = True
        return (ToolCallBlock("c", "todo", {"todos": []}),)

    def answer(self, request: ServerRequest) -> ServerAnswer:
        if self.prompt == 2:
            return "I continue." if self.called else self.call()
        return (
            self.fault.answers[request.number - 1]
            if request.number <= len(self.fault.answers)
            else "It works again."
        )

    async def run_session(self, folder: Path, dialect: str) -> tuple[Report, Report, int]:
        async with ModelServer(strict_script(self.answer)) as server:
            folders = str(folder), str(folder / "home")
            model = MODELS[dialect]
            async with Session(
                model=model,
                environ=make_environ(server.url),
                cwd=folders[0],
                home=folders[1],
                journal="memory",
            ) as session:
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
