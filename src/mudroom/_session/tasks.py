"""Tasks: runs outside a session's conversation, one or many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import Any

from msgspec.structs import replace

from .._core.agents import Agent
from .._core.budgets import Budget, check_amount
from .._core.events import AnyEvent, RunFinished, RunStarted
from .._core.runs import Brief, RecordedTask, Report, is_child_id
from .._core.runs import T as Outputs
from .._engine.structured_output import OutputType, parse_output_type
from ..errors import UsageError
from .prompts import (
    OutputSpec,
    Prompt,
    PromptContent,
    RunRequest,
    add_outputs,
    convert_report,
    parse_prompt,
    parse_prompts,
    to_report,
)
from .runner import SessionRunner

# Per task that may run, how many of a stream may wait for an earlier one to be reported. More would
# fill the memory if the first task takes long.
_WAITING_PER_SLOT = 4


async def run_task(
    runner: SessionRunner,
    prompt: Prompt,
    outputs: OutputSpec[Outputs],
    agent: str | Agent,
    budget: Budget | None,
    watcher: Callable[[AnyEvent], None] | None = None,
    **more: Any,
) -> Report[Outputs]:
    """Run a task outside the conversation. For `more`, see `BriefMaker.make_task_brief`."""
    specification, output_type = add_outputs(runner.briefs.select_agent(agent), outputs)
    content = parse_prompt(prompt)
    brief = runner.briefs.make_task_brief(content, specification, budget, **more)
    request = replace(runner.make_request(output_type), watcher=watcher)
    report = await runner.run_brief(brief, request)
    return convert_report(report, output_type)


async def resume_task(
    runner: SessionRunner, run_id: str, outputs: OutputSpec[Outputs]
) -> Report[Outputs]:
    output_type = None if outputs is None else parse_output_type(outputs)
    brief = runner.find_unfinished_task(run_id)
    if output_type and brief.agent.outputs != output_type.outputs:
        raise UsageError(
            "the interrupted task has other outputs",
            where=run_id,
            remedy="Give the type that it was started with, or none for plain values.",
        )
    request = runner.make_request(output_type)
    report = await runner.run_brief(brief, request)
    runner.forget_unfinished_task(run_id)
    return convert_report(report, output_type)


async def read_reports(runner: SessionRunner) -> list[RecordedTask]:
    found: dict[str, RecordedTask] = {}
    journal = runner.resources.services.journal
    async for event in journal.read(types=(RunStarted, RunFinished)):
        if isinstance(event, RunStarted) and not is_child_id(event.run):
            brief = event.brief
            found[event.run] = RecordedTask(
                run_id=event.run,
                agent=brief.agent.name,
                prompt=brief.prompt,
                key=brief.key,
                is_prompt=brief.depth == 0,
            )
        elif isinstance(event, RunFinished) and event.run in found:
            found[event.run] = replace(found[event.run], report=event.report)
    return list(found.values())


async def run_tasks(
    runner: SessionRunner,
    prompts: Iterable[Prompt],
    outputs: OutputSpec[Outputs],
    agent: str | Agent,
    budget: Budget | None,
    parallel: int,
) -> list[Report[Outputs]]:
    check_amount("parallel", parallel, "map", is_count=True, minimum=1)
    specification, output_type = add_outputs(runner.briefs.select_agent(agent), outputs)
    # All prompts are checked before the first task starts.
    contents = parse_prompts(prompts)
    briefs = [runner.briefs.make_task_brief(each, specification, budget) for each in contents]
    slots = asyncio.Semaphore(parallel)
    request = runner.make_request(output_type)

    async def run_one(brief: Brief) -> Report[Outputs]:
        async with slots:
            report = await runner.run_brief(brief, request)
            return convert_report(report, output_type)

    results = await asyncio.gather(*map(run_one, briefs), return_exceptions=True)
    return list(map(to_report, results, briefs))


async def stream_tasks(
    runner: SessionRunner,
    prompts: AsyncIterable[Prompt],
    outputs: OutputSpec[Outputs],
    agent: str | Agent,
    budget: Budget | None,
    parallel: int,
) -> AsyncGenerator[Report[Outputs]]:
    check_amount("parallel", parallel, "map", is_count=True, minimum=1)
    specification, output_type = add_outputs(runner.briefs.select_agent(agent), outputs)
    stream = _TaskStream(runner, specification, output_type, budget, parallel)
    feeder = asyncio.create_task(stream.feed(prompts))
    runner.feeders.add(feeder)
    try:
        while task := await stream.take():
            yield await task
        await feeder  # raises the error of the prompts
    finally:
        feeder.cancel()
        await asyncio.gather(feeder, return_exceptions=True)
        runner.feeders.discard(feeder)
        await stream.stop()


class _TaskStream:
    """A stream's started tasks whose reports have not been yielded yet."""

    def __init__(
        self,
        runner: SessionRunner,
        agent: Agent,
        output_type: OutputType[Any] | None,
        budget: Budget | None,
        parallel: int,
    ) -> None:
        self._runner = runner
        self._agent = agent
        self._output_type = output_type
        self._budget = budget
        self._slots = asyncio.Semaphore(parallel)
        self._places = asyncio.Semaphore((1 + _WAITING_PER_SLOT) * parallel)
        self._started: deque[asyncio.Task[Report[Any]]] = deque()
        self._changed = asyncio.Event()
        self._is_fed = False
        self._tasks: set[asyncio.Task[Report[Any]]] = set()

    async def feed(self, prompts: AsyncIterable[Prompt]) -> None:
        """Start a task for each prompt, until the prompts end or the session is cancelled."""
        request = self._runner.make_request(self._output_type)
        number = 0
        try:
            async for prompt in prompts:
                number += 1
                content = parse_prompt(prompt, f"prompt {number}")
                await self._places.acquire()
                await self._slots.acquire()
                if self._runner.is_stopped(request):
                    return
                self._started.append(self._start(content, request))
                self._changed.set()
        finally:
            self._is_fed = True
            self._changed.set()

    async def take(self) -> asyncio.Task[Report[Any]] | None:
        """Wait for the next task, in the order of the prompts; return None after the last one."""
        while not self._started:
            if self._is_fed:
                return None
            self._changed.clear()
            await self._changed.wait()
        self._places.release()
        return self._started.popleft()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, prompt: PromptContent, request: RunRequest) -> asyncio.Task[Report[Any]]:
        brief = self._runner.briefs.make_task_brief(prompt, self._agent, self._budget)
        task = asyncio.create_task(self._run(brief, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, brief: Brief, request: RunRequest) -> Report[Any]:
        try:
            report = await self._runner.run_brief(brief, request)
            return convert_report(report, self._output_type)
        except Exception as error:  # noqa: BLE001  `to_report` reports or raises it
            return to_report(error, brief)
        finally:
            self._slots.release()
