"""One convention for errors: the caller's mistakes are raised, failures of models are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mudroom import Agent, JournalError, MudroomError, Reason, Session, UsageError
from mudroom.errors import ModelRefused
from mudroom.scope import PromptConfig, RunConfig
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel

from ..waiting import wait_until
from ..worker_kinds import WORKERS
from .conftest import IsolatedOptions

Call = Callable[[Session], Awaitable[object]]

MISTYPED_MODEL = Agent(name="reader", model="antropic:x")
MISTAKES: dict[str, Call] = {
    "run, empty prompt": lambda session: session.run(" "),
    "task, empty prompt": lambda session: session.task(""),
    "map, empty prompt": lambda session: session.map(["one", ""]),
    "task, unknown agent": lambda session: session.task("a", agent="exploer"),
    "map, prompt that is no text": lambda session: session.map(["one", 5]),  # pyright: ignore
    "map, one text": lambda session: session.map("one"),
    "map, wrong outputs": lambda session: session.map(["a"], outputs={"a": 1}),
    "map, unknown model": lambda session: session.map(["a", "b"], agent=MISTYPED_MODEL),
    "map, no slot": lambda session: session.map(["a"], parallel=0),
    "map, unknown agent": lambda session: session.map(["a", "b"], agent="exploer"),
    "map, unknown agent, no prompt": lambda session: session.map([], agent="exploer"),
    "task, unknown model": lambda session: session.task("a", model="antropic:x"),
    "scope, no prompt": lambda session: session.scope("a", PromptConfig()),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_mistakes_of_the_caller_raise_usage_error_before_any_model_call(
    mistake: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(lambda request: "never")
    async with Session(model=model, journal="memory", **isolated) as session:
        with pytest.raises(UsageError):
            await MISTAKES[mistake](session)
    assert not model.requests


async def test_model_failures_are_reasons_everywhere(isolated: IsolatedOptions) -> None:
    def refuse(request: Request) -> Answer:
        return ModelRefused("no such model")

    async with Session(model=ScriptedModel(refuse), journal="memory", **isolated) as session:
        report = await session.run("a")
        task = await session.task("a")
        (mapped,) = await session.map(["a"])
        prompt = PromptConfig(system_prompt="Work.")
        output = await session.scope("worker", prompt, run_config=RunConfig(max_turns=2))
    assert {report.reason, task.reason, mapped.reason, output.terminate_reason} == {Reason.ERROR}
    assert output.report and "no such model" in output.report.error


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("kind", [ValueError, MudroomError, UsageError])
async def test_map_keeps_finished_reports_when_one_task_has_a_fault(
    kind: type[Exception], worker: str, isolated: IsolatedOptions
) -> None:
    async def answer(request: Request) -> str:
        if request.prompt == "bad":
            raise kind("fault of an adapter")
        await asyncio.sleep(0.02)
        return f"did {request.prompt}"

    model = ScriptedModel(answer)
    async with Session(model=model, journal="memory", worker=worker, **isolated) as session:
        reports = await session.map(["one", "bad", "two"])
    assert [report.text for report in reports] == ["did one", "", "did two"]
    assert reports[1].reason is Reason.ERROR
    assert reports[1].run_id == "2"
    assert "fault of an adapter" in reports[1].error


async def test_map_names_the_prompt_that_is_wrong(isolated: IsolatedOptions) -> None:
    async with Session(model=ScriptedModel([]), journal="memory", **isolated) as session:
        with pytest.raises(UsageError, match=r"the prompt is empty \(prompt 2\)"):
            await session.map(["one", " "])


async def test_map_raises_a_journal_error_itself(isolated: IsolatedOptions) -> None:
    with pytest.raises(JournalError):
        async with Session(
            model=ScriptedModel(lambda request: "hi"), journal=MemoryJournal(capacity=4), **isolated
        ) as session:
            await session.map(["one", "two", "three"])


async def test_cancelling_map_cancels_its_tasks(isolated: IsolatedOptions) -> None:
    started = 0

    async def wait(request: Request) -> str:
        nonlocal started
        started += 1
        await asyncio.sleep(3600)
        return "too late"

    async with Session(model=ScriptedModel(wait), journal="memory", **isolated) as session:
        mapping = asyncio.create_task(session.map(["one", "two"]))
        await wait_until(lambda: started == 2)
        mapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mapping
        assert started == 2
        assert not session.runs.cancel("1") and not session.runs.cancel("2")
