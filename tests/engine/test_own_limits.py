"""A run's own limit, wherever it is set: a run that begins leaves words, else it says why not."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from mudroom import (
    Agent,
    AssistantMessage,
    Budget,
    ContextState,
    ModelConfig,
    PromptConfig,
    Reason,
    Report,
    RunConfig,
    Session,
    SubAgentScope,
    TextBlock,
    Usage,
)
from mudroom._adapters.models.scripted import Request, ScriptedConversation, ScriptedModel, call
from mudroom._core.events import RunFinished
from mudroom._core.messages import StopReason
from mudroom._core.ports import RequestConfig
from mudroom.testing import MemoryJournal

MODEL = "anthropic:claude-sonnet-4-5"
INPUT, OUTPUT = 3e-6, 15e-6
"""Dollars for a token of the model, which has no cache here, as many providers have none."""

WRITTEN = 40


class CountingModel(ScriptedModel):
    """A model that reads on and on, without a word, until it has no tools.

    Attributes:
        sizes: tokens of its requests for the task, in order.
    """

    def __init__(self) -> None:
        super().__init__(self._answer, MODEL)
        self.sizes: list[int] = []
        self._tools: dict[str, int] = {}

    def start_conversation(self, config: RequestConfig) -> ScriptedConversation:
        tools = [(tool.name, tool.description, tool.parameters) for tool in config.tools]
        self._tools[config.system] = len(repr(tools))
        return super().start_conversation(config)

    def _answer(self, request: Request) -> AssistantMessage:
        if request.prompt == "PARENT":
            begin = (call("task", prompt="GO", agent="limited"),)
            content = (TextBlock("words"),) if request.turn else begin
            stop = StopReason.END if request.turn else StopReason.CALLS
            return AssistantMessage(content, stop, Usage(500, 10))
        blocks = [block for message in request.messages for block in message.content]
        characters = len(request.system) + sum(len(str(block)) for block in blocks)
        size = (characters + self._tools[request.system]) // 4
        self.sizes.append(size)
        usage = Usage(size, min(WRITTEN, request.max_tokens or WRITTEN))
        if usage.output_tokens < WRITTEN or not request.tools:
            return AssistantMessage((TextBlock("words"),), StopReason.END, usage)
        read = call("read", path="notes.txt", limit=request.turn + 1)
        return AssistantMessage((read,), StopReason.CALLS, usage)


async def run_limited(place: str, budget: Budget, folder: Path) -> tuple[list[Report], list[int]]:
    """Run a task with a limit of its own; return the reports and the sizes of its requests."""
    (folder / "notes.txt").write_text("notes\n" * 10)
    model, journal = CountingModel(), MemoryJournal()
    agent = Agent(
        name="limited", description="Reads.", instructions="Read.", tools=("read",), budget=budget
    )
    options: dict[str, Any] = {"cwd": str(folder), "home": str(folder / "home"), "environ": {}}
    options |= {"prompt": {"prompt_budget": budget}, "session": {"budget": budget}}.get(place, {})
    async with Session(
        model=model, sandbox="off", journal=journal, agents=[agent], **options
    ) as session:
        if place == "map":
            await session.map(["GO"], agent="limited")
        elif place == "job":
            await session.task("GO", budget=budget)
        elif place == "scope":
            await _run_scope(session, budget)
        else:
            await session.run("PARENT" if place == "task" else "GO")
    ends = [event for event in journal.events if isinstance(event, RunFinished)]
    return [end.report for end in ends], model.sizes


async def _run_scope(session: Session, budget: Budget) -> None:
    scope = await SubAgentScope.create(
        "limited",
        session,
        PromptConfig(system_prompt="Read."),
        ModelConfig(),
        RunConfig(max_budget_usd=budget.usd, max_turns=9),
    )
    await scope.run_non_interactive(ContextState())


PLACES = ("prompt", "session", "task", "map", "job", "scope")
LIMITS = ("input_tokens", "total_tokens", "output_tokens", "usd")
CASES = [
    (place, limit, parts)
    for place, limit, parts in itertools.product(PLACES, LIMITS, (0.5, 1.05, 1.5, 1.9, 2.5, 4.0))
    if place != "scope" or limit == "usd"  # a scope has a limit in dollars only
]


@pytest.mark.parametrize(("place", "limit", "parts"), CASES)
async def test_a_limit_of_a_few_requests_ends_with_words_or_before_the_first(
    place: str, limit: str, parts: float, tmp_path: Path
) -> None:
    """The limit is that many times the first request, or its answer."""
    _, sizes = await run_limited(place, Budget(usd=9, turns=2), tmp_path)
    amounts = {"output_tokens": WRITTEN, "usd": sizes[0] * INPUT + WRITTEN * OUTPUT}
    amount = parts * amounts.get(limit, sizes[0])
    chosen: dict[str, Any] = {limit: amount if limit == "usd" else int(amount)}
    reports, sizes = await run_limited(place, Budget(**chosen), tmp_path)
    for report in reports:
        if report.turns:
            assert report.text == "words", report
        else:
            assert report.reason is Reason.BUDGET and report.error.startswith("not started: ")
            assert "raise the limit of the run" in report.error
    assert sizes or parts < 4
    assert not sizes or parts > 1 or limit == "output_tokens"
