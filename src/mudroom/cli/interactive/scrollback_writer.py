"""What a conversation leaves in the scrollback: the root run's words as they become whole, its calls, how it ended."""

from __future__ import annotations

from collections import Counter

from ..._core.events import (
    AnyEvent,
    NoteInjected,
    RunFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from ..._core.messages import ToolCallBlock
from ..._core.tools import ToolResult, canonical_tool_name
from ...projections.run_tree import RunState, RunTree, RunView
from ...projections.safe_text import sanitize
from ..output.answer_stream import AnswerStream
from ..output.markdown import render_markdown
from ..output.scrollback import Scrollback
from ..output.text import Line
from ..output.tool_call_lines import format_tool_call

MAX_LISTED_TASKS = 12
"""Tasks of one answer above which only those that went wrong are written one by one, the others as a count."""


class ScrollbackWriter:
    """Takes the events of all runs and writes what the root run says and does.

    Arguments:
        tree: of the same events, fed before. tasks: whether to write what came of tasks, too.
    """

    def __init__(self, paper: Scrollback, tree: RunTree, *, show_tasks: bool = True) -> None:
        self._paper, self._tree, self._tasks = paper, tree, show_tasks
        self._spoken = AnswerStream(self._write, self._cut_off)
        self._calls: dict[str, ToolCallBlock] = {}
        self._crowd, self._listing = 0, False
        self._outcomes: Counter[RunState] = Counter()
        self._latest: tuple[ToolCallBlock, ToolResult, RunView | None] | None = None

    @property
    def pending(self) -> str:
        """The end of the answer that streams now."""
        return self._spoken.pending

    def apply(self, event: AnyEvent) -> None:
        """Take in an event, after the tree has."""
        if not event.run or "." in event.run:
            return
        self._spoken.apply(event)
        match event:
            case TurnFinished():
                tasks = sum(
                    canonical_tool_name(call.name) == "task" for call in event.message.tool_calls
                )
                self._crowd, self._outcomes = tasks if tasks > MAX_LISTED_TASKS else 0, Counter()
            case ToolCallStarted():
                self._calls[event.call.id] = event.call
            case ToolCallFinished():
                self._called(event)
            case NoteInjected(origin="person" | "parent"):
                self._paper.write_lines(
                    [(f"  {self._paper.glyphs.arrow}{sanitize(event.text)}", "cyan")]
                )
            case RunFinished():
                self._listing = False
            case _:
                pass

    def format_latest_result(self) -> list[Line]:
        """The last finished call with all that came of it; empty if there was none."""
        if self._latest is None:
            return []
        return format_tool_call(*self._latest, self._paper.columns(), self._paper.glyphs, full=True)

    def _write(self, markdown: str) -> None:
        self._paper.write("\n" if self._listing else "")
        self._listing = False
        self._paper.write(
            render_markdown(markdown, columns=self._paper.columns(), color=self._paper.color)
        )

    def _cut_off(self) -> None:
        self._paper.write_lines([("(the answer was cut off here)", "yellow")], [("", "")])

    def _called(self, event: ToolCallFinished) -> None:
        call = self._calls.pop(event.call_id, None) or ToolCallBlock(event.call_id, event.name, {})
        child = next(
            (run for run in self._tree.children(event.run) if run.call_id == event.call_id), None
        )
        self._latest = call, event.result, child
        if canonical_tool_name(call.name) == "task" and (
            not self._tasks or (self._crowd and self._counted(child))
        ):
            return
        self._listing = True
        self._paper.write_lines(
            *format_tool_call(
                call, event.result, child, self._paper.columns() - 1, self._paper.glyphs
            )
        )

    def _counted(self, child: RunView | None) -> bool:
        """Count a task of a crowd, and write the counts after the last; whether it needs no line of its own."""
        signs = self._paper.glyphs
        self._outcomes[child.state if child else RunState.FAILED] += 1
        if sum(self._outcomes.values()) == self._crowd:
            counts = ", ".join(
                f"{self._outcomes[state]} {state}" for state in RunState if self._outcomes[state]
            )
            self._paper.write_lines(
                [(f"{signs.head}{self._crowd:,} tasks: {counts}", "bold")], [("", "")]
            )
        return child is not None and child.state is RunState.DONE
