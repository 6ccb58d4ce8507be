"""A provider in every bad mood, on every wire.

The run ends in a typed outcome, and the session goes on at a provider that is strict.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mudroom import AnyEvent, Reason, Report, Session, ToolCallBlock
from mudroom._core.events import Delta
from mudroom.testing.clock import run_virtual
from mudroom.testing.invariants import find_violations
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.provider_faults import DIALECTS, FaultCase, fault_cases
from mudroom.testing.strict_provider import strict_script

CELLS = [(dialect, name) for dialect in DIALECTS for name in fault_cases(dialect)]
MODELS = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "openai": "openai:gpt-5",
    "openai-responses": "openai-responses:gpt-5",
    "google": "google:gemini-flash-latest",
}


def environ(url: str) -> dict[str, str]:
    names = {"ANTHROPIC": url, "OPENAI": f"{url}/v1", "GEMINI": f"{url}/v1beta"}
    return {f"{name}_API_KEY": "sk-planted" for name in names} | {
        f"{name}_BASE_URL": at for name, at in names.items()
    }


class Bad:
    """A server in that mood for the first prompt, and well for the second."""

    def __init__(self, mood: FaultCase) -> None:
        self.mood, self.events = mood, list[AnyEvent]()
        self.prompt, self.called = 1, False

    def call(self) -> ServerAnswer:
        self.called = True
        return (ToolCallBlock("c", "todo", {"todos": []}),)

    def answer(self, asked: ServerRequest) -> ServerAnswer:
        if self.prompt == 2:
            return "I go on." if self.called else self.call()
        return (
            self.mood.answers[asked.number - 1]
            if asked.number <= len(self.mood.answers)
            else "Well again."
        )

    async def live(self, folder: Path, dialect: str) -> tuple[Report, Report, int]:
        async with ModelServer(strict_script(self.answer)) as server:
            where = str(folder), str(folder / "home")
            model = MODELS[dialect]
            async with Session(
                model=model,
                environ=environ(server.url),
                cwd=where[0],
                home=where[1],
                journal="memory",
            ) as session:
                session.watch(self.events.append)
                first, requests = await session.run("PARENT"), server.request_count
                self.prompt = 2
                await asyncio.sleep(4000)
                return first, await session.run("Again."), requests


@pytest.mark.parametrize(("dialect", "name"), CELLS, ids=lambda part: part)
def test_s7_a_bad_mood_ends_in_a_typed_outcome_and_the_session_goes_on(
    tmp_path: Path, dialect: str, name: str
) -> None:
    mood = fault_cases(dialect)[name]
    bad = Bad(mood)
    report, after, requests = run_virtual(bad.live(tmp_path, dialect))
    assert after.reason is Reason.GOAL and after.text == "I go on.", after.error
    assert report.reason is mood.reason, report.error
    assert "sk-planted" not in report.error and "Traceback" not in report.error
    if mood.reason is Reason.GOAL:
        assert report.text.startswith(mood.text) and not report.error
    else:
        assert mood.error in report.error and report.error
    assert mood.requests is None or requests == mood.requests
    assert not find_violations(
        (event for event in bad.events if not isinstance(event, Delta)), timed=False
    )
