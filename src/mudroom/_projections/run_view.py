"""Values in the tree of runs: a run, its state, its merge in words, a running command."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from .._core.budgets import Budget
from .._core.events import ModelCallRetried, WorkMerged
from .._core.listings import count_noun
from .._core.messages import Usage
from .._core.runs import InboxMessage, Report
from .._core.tools import ToolView
from .safe_text import sanitize_line


class RunState(StrEnum):
    """What a run is doing. WAITING: for child runs, in tool calls or before ending."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class CommandView(Struct, frozen=True):
    """A running command. The id of a background command is the place of its call.

    `output` is the path of its output file, "" while a call waits for it.
    """

    id: str
    title: str
    started_at: float
    is_background: bool = False
    output: str = ""


class RunView(Struct, kw_only=True, eq=False):
    """One run in its current state. Only RunTree changes it.

    The fields up to `budget` come from the brief; `agent` is the name of the agent.

    Arguments:
        depth: 0 for a root run, 1 for its children.
        continues: id of the previous run in the same conversation, "" if there is none.
        name: a named child's name, else "".
        number: of the run among those of its named child, from 1.
        started_at, last_event_at, finished_at: seconds since 1970; finished_at is 0 while it runs.
        turn: number of the current model call.
        tool_call_count: finished calls, without refused ones.
        failed_calls: calls that returned an error, including refused ones.
        open_calls: views of unfinished tool calls, by call id.
        commands: the run's running commands, by id, in order of start.
        claims: subjects of board tasks claimed by the run, by id.
        unread: messages the run has not read, by id.
        last_action: the last tool call or its progress, or the last web search, as one line,
            safe to print.
        usage: the run's own tokens.
        descendant_usage: tokens of all runs below it.
        output_tail: last lines printed by an open call, not safe to print.
        streamed_tail: end of the streaming answer.
        streamed_length: characters of the streaming answer, including thinking and calls.
        pending_retry: set while a failed model call waits for its retry.
        report: set once the run has ended.
        merge: outcome of merging its work, once the parent has it.
        is_checking: true while a check runs on its merged work.
        error: the last error, safe to print.
        is_interrupted: true while the run waits for the next prompt, after an interrupt.
    """

    run_id: str
    parent: str
    call_id: str
    agent: str
    description: str
    model: str
    depth: int
    prompt: str
    continues: str
    budget: Budget
    started_at: float
    last_event_at: float
    name: str = ""
    number: int = 1
    finished_at: float = 0.0
    state: RunState = RunState.RUNNING
    turn: int = 0
    tool_call_count: int = 0
    failed_calls: int = 0
    open_calls: dict[str, ToolView] = {}
    commands: dict[str, CommandView] = {}
    claims: dict[int, str] = {}
    unread: dict[str, InboxMessage] = {}
    last_action: str = ""
    usage: Usage = Usage()
    descendant_usage: Usage = Usage()
    output_tail: str = ""
    streamed_tail: str = ""
    streamed_length: int = 0
    pending_retry: ModelCallRetried | None = None
    report: Report | None = None
    merge: WorkMerged | None = None
    is_checking: bool = False
    error: str = ""
    is_interrupted: bool = False

    @property
    def total_usage(self) -> Usage:
        """Tokens of the run and all runs below it."""
        return self.usage + self.descendant_usage

    @property
    def title(self) -> str:
        """What screens call the run: its description, else its prompt."""
        return self.description or self.prompt

    @property
    def label(self) -> str:
        """The name of a named child with the number of a later run, else agent and run id."""
        return self.short_label if self.name else f"{self.short_label}#{self.run_id}"

    @property
    def short_label(self) -> str:
        """The name of a named child with the number of a later run, else the agent."""
        return format_name(self.name, self.number) or sanitize_line(self.agent)

    def count_seconds(self, now: float) -> float:
        """Count the run's seconds, until `now` if it has not finished."""
        return max(0.0, (self.finished_at or now) - self.started_at)


def format_name(name: str, number: int = 1) -> str:
    """Format a named child's name, safe to print, with the number of a later run."""
    name = sanitize_line(name)
    return f"{name}, run {number}" if name and number > 1 else name


def describe_merge(run: RunView) -> str:
    """Describe what became of a run's work: "merged 2 files", "conflict in 1 file", "checking".

    "" for a run that shared its parent's files, or whose merge is unfinished.
    """
    if run.is_checking:
        return "checking"
    work = run.report.work if run.report else None
    if work is None or run.merge is None:
        return ""
    if run.merge.state == "merged":
        files = len(run.merge.files)
        return f"merged {count_noun(files, 'file')}" if files else "no changes"
    if run.merge.state == "conflict":
        text = f"conflict in {count_noun(len(run.merge.conflicts), 'file')}"
        return f"{text}, back to the child" if run.merge.returned else text
    if run.merge.state == "red":
        return "check failed"
    if run.merge.state == "dropped":
        return "dropped"
    return f"{count_noun(len(work.files), 'file')} not merged"
