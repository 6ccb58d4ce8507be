"""A run as it is read from a log: steps in order, from which its events are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .._core.agents import Agent, Brief, Reason, Report
from .._core.budgets import Budget
from .._core.events import (
    NoteInjected,
    RunFinished,
    RunStarted,
    SessionClosed,
    SessionOpened,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from .._core.tools import ToolResult, canonical_tool_name


class TurnBuilder:
    """One answer while its blocks come in."""

    def __init__(self, number: int, key: str, started_at: float) -> None:
        self.number, self.key, self.began, self.finished_at = number, key, started_at, started_at
        self.content: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
        self.usage = Usage()

    @property
    def text(self) -> str:
        """Its words, without thinking and calls."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def calls(self) -> list[ToolCallBlock]:
        """Its calls, in their order."""
        return [block for block in self.content if isinstance(block, ToolCallBlock)]

    def build_events(self, run: str, model: str) -> Iterator[StoredEvent]:
        """The model call, and the intents of its calls."""
        stop = StopReason.CALLS if self.calls else StopReason.END
        message = AssistantMessage(
            tuple(self.content), stop_reason=stop, usage=self.usage, model=model
        )
        yield TurnStarted(at=self.began, run=run, turn=self.number)
        yield TurnFinished(
            at=self.finished_at,
            run=run,
            turn=self.number,
            message=message,
            seconds=round(self.finished_at - self.began, 3),
        )
        for call in self.calls:
            yield ToolCallStarted(at=self.finished_at, run=run, turn=self.number, call=call)


class RunBuilder:
    """One run: `place` is its parent and the call that began it, `results` what its own calls gave back, by id.

    Arguments:
        run_id, prompt: of its brief. at: when it began, in seconds since 1970. brief: other fields of it.
    """

    def __init__(
        self,
        run_id: str,
        prompt: str,
        last_at: float,
        *,
        agent: str = "main",
        instructions: str = "",
        **brief: Any,
    ) -> None:
        self.run_id, self.prompt, self.started_at, self.at = run_id, prompt, last_at, last_at
        self.model, self.report_text, self.has_failed = "", "", False
        self.turns: list[TurnBuilder] = []
        self.results: dict[str, str] = {}
        self._agent = Agent(name=agent, instructions=instructions)
        self.parent_call = brief.get("parent", ""), brief.get("call_id", "")
        self._brief = brief
        self._steps: list[StoredEvent | TurnBuilder] = []
        self._open: TurnBuilder | None = None
        self._calls: dict[str, tuple[str, int, float]] = {}

    def add_answer(
        self, at: float, blocks: Iterable[TextBlock | ThinkingBlock | ToolCallBlock], key: str = ""
    ) -> TurnBuilder:
        """Take in blocks of an answer: a further part of the open turn if they have its key, else a new turn."""
        before, self.at = self.at, max(self.at, at)
        turn = self._open
        if turn is None or turn.key != key:
            turn = self._open = TurnBuilder(len(self.turns) + 1, key, before)
            self.turns.append(turn)
            self._steps.append(turn)
        turn.finished_at = self.at
        turn.content += blocks
        self._calls.update(
            {
                call.id: (canonical_tool_name(call.name), turn.number, self.at)
                for call in turn.calls
                if call.id not in self._calls
            }
        )
        return turn

    def add_result(self, at: float, call_id: str, text: str, *, error: bool = False) -> None:
        """Take in the result of a call; one that was not asked for, or has one, is passed over."""
        self.at, self._open = max(self.at, at), None
        name, turn, begun = self._calls.get(call_id, ("", 0, 0.0))
        if name:
            self._calls[call_id], self.results[call_id] = ("", turn, begun), text
            result = ToolResult(text, error=error)
            took = round(self.at - begun, 3)
            self._steps.append(
                ToolCallFinished(
                    at=self.at,
                    run=self.run_id,
                    turn=turn,
                    call_id=call_id,
                    name=name,
                    result=result,
                    seconds=took,
                )
            )

    def add_note(self, at: float, text: str, origin: str = "engine") -> None:
        """Take in a word beside prompt and results."""
        self.at, self._open = max(self.at, at), None
        self._steps.append(
            NoteInjected(
                at=self.at, run=self.run_id, turn=len(self.turns), text=text, origin=origin
            )
        )

    def build_events(self) -> Iterator[StoredEvent]:
        """All of it, with the report at the end."""
        brief = Brief(
            run_id=self.run_id,
            agent=self._agent,
            prompt=self.prompt,
            tools=(),
            model=self.model or "unknown",
            budget=Budget(),
            **self._brief,
        )
        yield RunStarted(at=self.started_at, run=self.run_id, brief=brief)
        for step in self._steps:
            yield from (
                step.build_events(self.run_id, self.model)
                if isinstance(step, TurnBuilder)
                else (step,)
            )
        text = self.report_text or next(
            (turn.text for turn in reversed(self.turns) if turn.text), ""
        )
        report = Report[dict[str, Any]](
            text=text,
            outputs={},
            reason=Reason.ERROR if self.has_failed else Reason.GOAL,
            run_id=self.run_id,
            usage=sum((turn.usage for turn in self.turns), Usage()),
            turns=len(self.turns),
            agent=self._agent.name,
        )
        yield RunFinished(at=self.at, run=self.run_id, turn=len(self.turns), report=report)


def build_session(
    name: str, cwd: str, version: str, runs: list[RunBuilder]
) -> tuple[str, list[StoredEvent]]:
    """A session's id, and the events of its runs on one clock."""
    events = sorted(
        (event for run in runs for event in run.build_events()), key=lambda event: event.at
    )  # stable: a run's own order stays
    first, last = (events[0].at, events[-1].at) if events else (0.0, 0.0)
    return name, [
        SessionOpened(at=first, session=name, cwd=cwd, version=version),
        *events,
        SessionClosed(at=last),
    ]
