"""TaskCalls: the methods of a session that run tasks beside the conversation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from types import CoroutineType
from typing import Any, overload

from ..._core.agents import Agent
from ..._core.budgets import Budget
from ..._core.runs import RecordedTask, Report
from ..._core.runs import T as Outputs
from ..prompts import Prompt
from . import tasks
from .requests import OutputSpec, convert_report
from .runner import SessionRunner


class TaskCalls(ABC):
    """Tasks of a session: runs in clean contexts that the caller starts."""

    async def task(
        self,
        prompt: Prompt,
        *,
        outputs: OutputSpec[Outputs] = None,
        agent: str | Agent = "general",
        budget: Budget | None = None,
        model: str | None = None,
        description: str = "",
        check: str = "",
        confirm_check: bool = False,
        key: str = "",
    ) -> Report[Outputs]:
        """Run one task in a clean context, beside the conversation.

        Arguments:
            outputs: as for `run`.
            agent: the agent, or its name.
            budget: fields that are None come from the agent, then from the session.
            model: a model string in place of the agent's.
            description: three to five words for screens.
            check: command that must succeed with a copy of the files when the task has reached its
                goal, or the reason of the report is ERROR.
            confirm_check: the command is asked about like one of a model.
            key: your id of the task, for the brief in the record.
        """
        runner = self._require_open()
        brief, request = tasks.make_task(
            runner,
            prompt,
            outputs,
            agent,
            budget,
            model=model,
            description=description,
            check=check,
            confirm_check=confirm_check,
            key=key,
        )
        report = await runner.execute(runner.resources.worker, brief, request)
        return convert_report(report, request.output_type)

    def check_task(self, *, agent: str | Agent = "general", model: str | None = None) -> None:
        """Raise UsageError if tasks cannot have this agent or model; nothing is started.

        Example:
            session.check_task(agent="explore", model="anthropic:claude-sonnet-4-5")
        """
        briefs = self._require_open().briefs
        briefs.resolve_model(briefs.select_agent(agent), model)

    async def resume_task(
        self, run_id: str, *, outputs: OutputSpec[Outputs] = None
    ) -> Report[Outputs]:
        """Continue one task that a crash interrupted from its last step, to its end.

        Several can continue at the same time, beside other tasks.

        Arguments:
            run_id: one of `unfinished_runs`.
            outputs: as for `resume_unfinished`.

        Raises UsageError if no task with this id was interrupted.

        Example:
            for run_id in session.unfinished_runs:
                print(await session.resume_task(run_id))
        """
        return await tasks.resume_task(self._require_open(), run_id, outputs)

    async def reports(self) -> list[RecordedTask]:
        """Return the prompts, tasks and scopes of the session so far, oldest first.

        They come from the record, so those of earlier processes are among them: after a crash, a
        program finds here which items of a `map` are done. Raises JournalError.

        Example:
            done = {each.prompt: each.report for each in await session.reports() if each.report}
            missing = [prompt for prompt in prompts if prompt not in done]
        """
        return await tasks.read_reports(self._require_open())

    @overload
    def map(
        self,
        prompts: Iterable[Prompt],
        *,
        outputs: OutputSpec[Outputs] = None,
        agent: str | Agent = "general",
        parallel: int | None = None,
        budget: Budget | None = None,
    ) -> CoroutineType[Any, Any, list[Report[Outputs]]]: ...

    @overload
    def map(
        self,
        prompts: AsyncIterable[Prompt],
        *,
        outputs: OutputSpec[Outputs] = None,
        agent: str | Agent = "general",
        parallel: int | None = None,
        budget: Budget | None = None,
    ) -> AsyncGenerator[Report[Outputs]]: ...

    def map(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        outputs: OutputSpec[Any] = None,
        agent: str | Agent = "general",
        parallel: int | None = None,
        budget: Budget | None = None,
    ) -> CoroutineType[Any, Any, list[Report[Any]]] | AsyncGenerator[Report[Any]]:
        """Run one task per prompt, each in its own context; return the reports in the same order.

        A task that fails does not stop the others: its report says ERROR.

        Arguments:
            prompts: an iterable gives a list of reports; an async iterable an async iterator,
                which keeps only the tasks that run, and the reports that wait for an earlier one.
            parallel: tasks that run at the same time; default: `max_children`.

        An iterable is checked whole before the first task starts. Raises UsageError if a prompt,
        the agent or `outputs` is wrong, and JournalError when all tasks have ended. An async
        iterator ends after `cancel`; its tasks are cancelled when it is closed.

        Example:
            async for report in session.map(read_prompts(), parallel=200):
                print(report.run_id, report.text)
        """
        runner = self._require_open()
        amount = runner.max_children if parallel is None else parallel
        if isinstance(prompts, AsyncIterable):
            return tasks.stream_tasks(runner, prompts, outputs, agent, budget, amount)
        return tasks.run_tasks(runner, prompts, outputs, agent, budget, amount)

    @abstractmethod
    def _require_open(self) -> SessionRunner:
        """Return the runner of the session. Raises UsageError if the session is not open."""
