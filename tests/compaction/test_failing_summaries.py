"""Summaries that fail or call tools: refused or given up early, and the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom import Budget, Compaction, Reason, TextBlock
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import (
    Compacted,
    ModelCallRetried,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    TurnStarted,
)
from mudroom._replay import replay
from mudroom.errors import ModelUnavailable
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from .conftest import Stage, is_summary, is_valid, join_request, make_talker
from .test_overflow_on_wires import make_answer, run_session

PROMPT = "Read all files. Never touch 3.txt."
BROKEN = Fault(status=500, body=b'{"error": {"message": "broken"}}')
OVERLOADED = Fault(status=529, body=b'{"error": {"message": "overloaded"}}')


def run_with_faults(folder: Path, fault: Fault, faults: int) -> tuple[MemoryJournal, int]:
    """Run a session whose first summary requests fail; return also how many it has sent."""
    sent = 0

    def summarise(request: ServerRequest) -> ServerAnswer:
        nonlocal sent
        sent += 1
        return fault if sent <= faults else (TextBlock("Goal: read all."),)

    async def work() -> MemoryJournal:
        async with ModelServer(make_answer("anthropic:m", summarise=summarise)) as server:
            return await run_session(server, "anthropic:m", folder)

    return run_virtual(work()), sent


def select_summaries(journal: MemoryJournal) -> list[str]:
    events = journal.events
    return [e.run for e in events if isinstance(e, RunStarted) and e.brief.is_compaction]


@pytest.mark.parametrize("fault", [BROKEN, OVERLOADED], ids=["broken", "overloaded"])
def test_a_summary_whose_requests_fail_is_tried_twice_and_done_without(
    tmp_path: Path, fault: Fault
) -> None:
    journal, requests = run_with_faults(tmp_path, fault, 1_000)
    assert len(select_summaries(journal)) == 1
    assert requests == 2
    assert any(isinstance(event, Compacted) for event in journal.events)
    waits = [event.delay for event in journal.events if isinstance(event, ModelCallRetried)]
    assert sum(waits) < 10, "seconds that the run lost"


def test_a_summary_that_fails_once_has_its_notes(tmp_path: Path) -> None:
    journal, requests = run_with_faults(tmp_path, BROKEN, 1)
    assert requests == 1 + len(select_summaries(journal))
    (first, *_) = [event for event in journal.events if isinstance(event, Compacted)]
    assert first.parts["notes_tokens"]


CALLS = [call("bash", command="touch made"), call("task", prompt="CHILD")]


@pytest.mark.parametrize("is_of_user", [False, True])
@pytest.mark.parametrize("words", ["Goal: the notes", ""])
async def test_a_compaction_refuses_the_calls_of_its_summary(
    stage: Stage, words: str, *, is_of_user: bool
) -> None:
    stage.write_files(40)
    notes = words or "Goal: asked again"

    def summarise(request: Request) -> Answer:
        return "Goal: asked again" if request.results else [*filter(None, [words]), *CALLS]

    window = None if is_of_user else 32_000
    async with stage.open(
        make_talker(4 if is_of_user else 14, summarise),
        compaction=Compaction(context_window=window),
    ) as session:
        report = await session.run(PROMPT)
        assert (report.reason, report.text) == (Reason.GOAL, "done")
        if is_of_user:
            assert (await session.compact()).text == notes
            await session.run("Go on.")
    await check_summaries(stage, notes, requests=1 if words else 2)


async def check_summaries(stage: Stage, notes: str, requests: int) -> None:
    (summary,) = [e for e in stage.select(RunStarted) if e.brief.is_compaction or e.brief.depth]
    calls = [e for e in stage.select(ToolCallFinished) if e.run == summary.run]
    assert [event.refused for event in calls] == [True, True]
    assert not (stage.folder / "made").exists()
    turns = [event for event in stage.select(TurnStarted) if event.run == summary.run]
    assert len(turns) == requests
    (end,) = [event for event in stage.select(RunFinished) if event.run == summary.run]
    assert end.report.calls == {}
    assert notes in join_request(stage.model.requests[-1])
    assert all(is_valid(request.messages) for request in stage.model.requests)
    assert await replay(stage.events) == stage.events


@pytest.mark.parametrize("words", ["my summary", ""])
@pytest.mark.parametrize("way", ["limit", "wrap-up"])
async def test_a_last_turn_refuses_its_calls_and_is_not_repeated(
    stage: Stage, way: str, words: str
) -> None:
    stage.write_files(3)

    def is_last(request: Request) -> bool:
        return "Summarise now" in join_request(request)

    def script(request: Request) -> Answer:
        if is_last(request):
            return [*filter(None, [words]), *CALLS]
        return ["my first finding", call("read", file_path="0.txt")]

    budget = Budget(turns=1) if way == "limit" else Budget()
    async with stage.open(script, prompt_budget=budget) as session:

        def wrap_up(event: object) -> None:
            if way == "wrap-up" and isinstance(event, ToolCallFinished):
                session.runs.wrap_up("1")

        session.watch(wrap_up)
        report = await session.run(PROMPT)
    assert report.text == (words or "my first finding")
    assert not (stage.folder / "made").exists()
    assert len([request for request in stage.model.requests if is_last(request)]) == 1
    assert is_last(stage.model.requests[-1])
    late = [event.refused for event in stage.select(ToolCallFinished)]
    assert late[-2:] == [True, True]
    assert await replay(stage.events) == stage.events


async def test_a_last_turn_that_fails_leaves_the_text_so_far(stage: Stage) -> None:
    stage.write_files(3)

    def script(request: Request) -> Answer:
        if request.results:
            return ModelUnavailable("broken")
        return ["my first finding", call("read", file_path="0.txt")]

    async with stage.open(script, prompt_budget=Budget(turns=1)) as session:
        report = await session.run(PROMPT)
    assert (report.reason, report.recovered) == (Reason.MAX_TURNS, False)
    assert report.text == "my first finding"
    assert not any(is_summary(request) for request in stage.model.requests)
    assert json.dumps(report.text)
    assert await replay(stage.events) == stage.events
