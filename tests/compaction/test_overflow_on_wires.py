"""Overflow over real connections: each wire, many children, and worker processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom import Reason, Session, TextBlock, ToolCallBlock
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._core.events import Compacted, ResultsCleared, RunFinished, TurnFailed
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..worker_kinds import RAY

LIMIT = 90_000
"""Bytes of the longest request that the server accepts."""
TURNS = 14
REFUSALS = {
    "anthropic:m": "prompt is too long: 30000 tokens > 22000 maximum",
    "openai:m": "This model's maximum context length is 22000 tokens. Reduce the length.",
    "openai-responses:m": "Your input exceeds the context window of this model.",
    "google:m": "The input token count (30000) exceeds the maximum number of tokens allowed",
}


def summarise(request: ServerRequest) -> ServerAnswer:
    return (TextBlock("Goal: read all."),)


def make_answer(
    model: str,
    children: int = 0,
    summarise: Callable[[ServerRequest], ServerAnswer] = summarise,
) -> Callable[[ServerRequest], ServerAnswer]:
    """Return a server script: each run reads a file a turn and writes long texts."""
    fault = Fault(status=400, body=json.dumps({"error": {"message": REFUSALS[model]}}).encode())

    def answer(request: ServerRequest) -> ServerAnswer:
        text = request.body.decode()
        if "Summarise this conversation" in text:
            return fault if len(request.body) > LIMIT else summarise(request)
        if len(request.body) > LIMIT:
            return fault
        if children and "PARENT" in text:
            tasks = [{"prompt": f"CHILD {n}"} for n in range(children)]
            calls = [ToolCallBlock(f"t{n}", "task", task) for n, task in enumerate(tasks)]
            return calls if request.turn == 0 else (TextBlock("done"),)
        number = max((n for n in range(1, TURNS + 1) if f"thought-{n}-" in text), default=0)
        if number >= TURNS:
            return (TextBlock("done"),)
        arguments = {"file_path": f"{number}.txt"}
        thought = TextBlock(f"thought-{number + 1}- {'y' * 4_000}")
        return (thought, ToolCallBlock(f"c{number}", "read", arguments))

    return answer


async def run_session(
    server: ModelServer, model: str, folder: Path, worker: str = "local"
) -> MemoryJournal:
    work = folder / "work"
    work.mkdir()
    for number in range(TURNS):
        (work / f"{number}.txt").write_text("a line of some file\n" * 300)
    names = ("ANTHROPIC", "OPENAI", "GEMINI")
    environ = {f"{name}_API_KEY": "k-test" for name in names}
    environ["ANTHROPIC_BASE_URL"] = server.url
    environ["OPENAI_BASE_URL"] = f"{server.url}/v1"
    environ["GEMINI_BASE_URL"] = f"{server.url}/v1beta"
    environ["HOME"] = str(folder / "user")
    journal = MemoryJournal()
    async with Session(
        model=model,
        cwd=str(work),
        home=str(folder / "home"),
        environ=environ,
        journal=journal,
        sandbox="off",
        worker=worker,
    ) as session:
        report = await session.run("PARENT: read all.")
    assert (report.reason, report.error) == (Reason.GOAL, "")
    return journal


@pytest.mark.parametrize("model", REFUSALS)
async def test_each_wire_recovers(tmp_path: Path, model: str) -> None:
    async with ModelServer(make_answer(model)) as server:
        journal = await run_session(server, model, tmp_path)
    failures = [event for event in journal.events if isinstance(event, TurnFailed)]
    assert 1 <= len(failures) <= 2
    assert any(isinstance(event, ResultsCleared | Compacted) for event in journal.events)
    assert not find_violations(journal.events)
    assert await replay(journal.events) == journal.events


@pytest.mark.parametrize("worker", ["local", "process:2", RAY])
async def test_many_children_recover_at_once(tmp_path: Path, worker: str) -> None:
    model = "anthropic:m"
    async with ModelServer(make_answer(model, children=6)) as server:
        journal = await run_session(server, model, tmp_path, worker)
    reports = {each.run: each.report for each in journal.events if isinstance(each, RunFinished)}
    assert {report.reason for report in reports.values()} == {Reason.GOAL}
    edited = {each.run for each in journal.events if isinstance(each, ResultsCleared | Compacted)}
    assert edited == {f"1.1.{number}" for number in range(1, 7)}
    refused = [each.run for each in journal.events if isinstance(each, TurnFailed)]
    assert len(refused) == len(set(refused))
    assert not find_violations(journal.events)
    assert await replay(journal.events) == journal.events
