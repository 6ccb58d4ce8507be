"""Builder of runs: collects the steps read from a log and makes events of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from .._core.agents import Agent
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
    AssistantBlock,
    AssistantMessage,
    StopReason,
    TextBlock,
    ToolCallBlock,
    Usage,
)
from .._core.run_ids import count_above
from .._core.runs import Brief, Reason, Report
from .._core.tool_names import normalize_tool_name
from .._core.tools import ToolResult
from ..projections.safe_text import make_call_title
from ..tools import find_builtin_tool


class TurnBuilder:
    """One answer of a model, collected block by block.

    Arguments:
        key: id of the answer in the log; blocks with the same key belong together.
        started_at: seconds since 1970.
    """

    def __init__(self, number: int, key: str, started_at: float) -> None:
        self.number = number
        self.key = key
        self.started_at = started_at
        self.finished_at = started_at
        self.content: list[AssistantBlock] = []
        self.usage = Usage()

    @property
    def text(self) -> str:
        """The texts of the answer, without thinking and calls."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def calls(self) -> list[ToolCallBlock]:
        """The tool calls of the answer, in order."""
        return [block for block in self.content if isinstance(block, ToolCallBlock)]

    def build_events(self, run: str, model: str) -> Iterator[StoredEvent]:
        """Yield the events of the model call and the starts of its tool calls."""
        message = AssistantMessage(
            tuple(self.content),
            stop_reason=StopReason.CALLS if self.calls else StopReason.END,
            usage=self.usage,
            model=model,
        )
        yield TurnStarted(at=self.started_at, run=run, turn=self.number)
        yield TurnFinished(
            at=self.finished_at,
            run=run,
            turn=self.number,
            message=message,
            seconds=round(self.finished_at - self.started_at, 3),
        )
        for call in self.calls:
            yield start_call(self.finished_at, run, self.number, call)


def start_call(at: float, run: str, turn: int, call: ToolCallBlock) -> ToolCallStarted:
    """Return the start of a call, shown like a call of mudroom's tool for the same purpose."""
    tool = find_builtin_tool(call.name)
    arguments = tool.rename_arguments(call.arguments) if tool else call.arguments
    return ToolCallStarted(
        at=at,
        run=run,
        turn=turn,
        call=replace(call, arguments=arguments),
        title=make_call_title(arguments, tool),
        view=tool.view if tool else "run" if starts_run(call) else "",
    )


def starts_run(call: ToolCallBlock) -> bool:
    """Return whether a call of another program starts a child run."""
    return normalize_tool_name(call.name) == "task"


class RunBuilder:
    """One run, collected step by step.

    Arguments:
        started_at: seconds since 1970.
        other arguments: fields of the run's brief.

    Attributes:
        last_at: time of the last step, seconds since 1970.
        parent_call: id of the parent run, and of the call that started this run.
        results: texts of the results of this run's calls, by call id.
        report_text, has_failed: outcome of a child run, as its parent's log reports it.
    """

    def __init__(
        self,
        run_id: str,
        prompt: str,
        started_at: float,
        *,
        agent: str = "main",
        instructions: str = "",
        description: str = "",
        continues: str = "",
        parent: str = "",
        call_id: str = "",
    ) -> None:
        self.run_id = run_id
        self.prompt = prompt
        self.started_at = started_at
        self.last_at = started_at
        self.model = ""
        self.report_text = ""
        self.has_failed = False
        self.turns: list[TurnBuilder] = []
        self.results: dict[str, str] = {}
        self.parent_call = (parent, call_id)
        self._brief = Brief(
            run_id=run_id,
            agent=Agent(name=agent, instructions=instructions),
            prompt=prompt,
            tools=(),
            model="unknown",
            budget=Budget(),
            description=description,
            continues=continues,
            parent=parent,
            call_id=call_id,
            depth=count_above(run_id),
        )
        self._steps: list[StoredEvent | TurnBuilder] = []
        self._open_turn: TurnBuilder | None = None
        self._next_usage = Usage()
        self._calls: dict[str, ToolCallStarted] = {}

    def add_answer(self, at: float, blocks: Iterable[AssistantBlock], key: str = "") -> TurnBuilder:
        """Add blocks of an answer to the open turn if it has the same key, else to a new turn."""
        previous_at = self.last_at
        self.last_at = max(self.last_at, at)
        turn = self._open_turn
        if turn is None or turn.key != key:
            turn = TurnBuilder(len(self.turns) + 1, key, previous_at)
            turn.usage = self._next_usage
            self._next_usage = Usage()
            self._open_turn = turn
            self.turns.append(turn)
            self._steps.append(turn)
        turn.finished_at = self.last_at
        turn.content += blocks
        for call in turn.calls:
            started = start_call(self.last_at, self.run_id, turn.number, call)
            self._calls.setdefault(call.id, started)
        return turn

    def set_usage(self, usage: Usage) -> None:
        """Set the tokens of the last answer, or of the next one if the last one is over.

        Some logs count the tokens of an answer before its blocks, others after them.
        """
        last = self.turns[-1] if self.turns else None
        if last is not None and (last is self._open_turn or last.usage == Usage()):
            last.usage = usage
        else:
            self._next_usage = usage

    def add_result(self, at: float, call_id: str, text: str, *, error: bool = False) -> None:
        """Add the result of a call; an unknown call and a second result are ignored."""
        self.last_at = max(self.last_at, at)
        self._open_turn = None
        started = self._calls.get(call_id)
        if started is None or call_id in self.results:
            return
        self.results[call_id] = text
        self._steps.append(
            ToolCallFinished(
                at=self.last_at,
                run=self.run_id,
                turn=started.turn,
                call_id=call_id,
                name=normalize_tool_name(started.call.name),
                result=ToolResult(text, error=error),
                seconds=round(self.last_at - started.at, 3),
            )
        )

    def add_note(self, at: float, text: str, origin: str = "engine") -> None:
        """Add a text that is neither prompt nor result."""
        self.last_at = max(self.last_at, at)
        self._open_turn = None
        self._steps.append(
            NoteInjected(
                at=self.last_at, run=self.run_id, turn=len(self.turns), text=text, origin=origin
            )
        )

    def build_events(self) -> Iterator[StoredEvent]:
        """Yield all events of the run, with the report at the end."""
        brief = replace(self._brief, prompt=self.prompt, model=self.model or "unknown")
        yield RunStarted(at=self.started_at, run=self.run_id, brief=brief)
        for step in self._steps:
            if isinstance(step, TurnBuilder):
                yield from step.build_events(self.run_id, self.model)
            else:
                yield step
        last_text = next((turn.text for turn in reversed(self.turns) if turn.text), "")
        report = Report[dict[str, Any]](
            text=self.report_text or last_text,
            outputs={},
            reason=Reason.ERROR if self.has_failed else Reason.GOAL,
            run_id=self.run_id,
            usage=sum((turn.usage for turn in self.turns), Usage()),
            turns=len(self.turns),
            agent=brief.agent.name,
        )
        yield RunFinished(at=self.last_at, run=self.run_id, turn=len(self.turns), report=report)


def build_session(
    session: str, cwd: str, version: str, runs: list[RunBuilder]
) -> tuple[str, list[StoredEvent]]:
    """Return a session's id and the events of its runs in the order of time."""
    events = [event for run in runs for event in run.build_events()]
    # The sort is stable: events of one run keep their order.
    events.sort(key=lambda event: event.at)
    first = events[0].at if events else 0.0
    last = events[-1].at if events else 0.0
    return session, [
        SessionOpened(at=first, session=session, cwd=cwd, version=version),
        *events,
        SessionClosed(at=last),
    ]
