"""Runs: the input of a run (Brief), its output (Report), the reason of its end, messages to it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import Struct, field

from .agents import Agent, Mode, WorkspaceSpec
from .budgets import Budget, LimitState
from .file_conflicts import FileConflict
from .messages import ImageBlock, Message, TextBlock, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")


class Reason(StrEnum):
    """Reason why a run ended; set once.

    Example:
        report = await session.task("Find the author.")
        report.ok == (report.reason is Reason.GOAL)
    """

    GOAL = "GOAL"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"
    MAX_TURNS = "MAX_TURNS"
    CANCELLED = "CANCELLED"
    BUDGET = "BUDGET"
    LOOP = "LOOP"
    LOST = "LOST"


class Check(Struct, frozen=True, omit_defaults=True):
    """A command that decides whether work is accepted.

    Arguments:
        command: a bash command; the exit code 0 is success.
        seconds: its time limit.
        is_from_user: true if the user gave it, so it needs no confirmation.
    """

    command: str
    seconds: float
    is_from_user: bool = False


class Brief(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Complete input of a run; the run knows nothing else.

    Arguments:
        run_id: place of the run in the session: "1" is the first root run, "1.3.2" the child that
            the second call of its third turn started.
        parent: run id of the parent, "" for a root run.
        call_id: the parent's tool call that waits for the report.
        prompt: the first user message as text; a placeholder stands for each image.
        content: blocks of that message; () if it is only the text.
        description: three to five words for screens.
        tools: names of the tools in order, already narrowed to what the caller allows.
        model: resolved model string.
        budget: limits after allocation from the parent's budget.
        mode: permission mode, already limited to the caller's.
        inherited_patterns: call patterns of the agents above this one; they hold for this run, too.
        workspace: the files that the run sees.
        depth: 0 for a root run.
        continues: run id whose conversation this run continues.
        is_compaction: true if the run summarises that conversation. A run that continues it gets
            only its prompt and its answer.
        history: earlier messages of the conversation, oldest first. The journal stores them only
            with the runs that they come from.
        name: name of a child that later messages start again, "" for any other run.
        teammates: the other named children when the run began: name and agent.
        is_plan: true if the run may only read and ends with a plan, which its parent approves.
        message_ids: messages that are the prompt: this run begins because of them.
        board_task: id of the task of the board that the run works on; 0 for a run that another
            message or a call began.
        check: must succeed with the files of the run at its end, or the run has not reached its
            goal. None for a child run: its work has a check when it is merged.
        key: id that the caller gave a task, "" for none.
        has_own_model: true if the model is for this prompt only.
    """

    run_id: str
    agent: Agent
    prompt: str
    tools: tuple[str, ...]
    model: str
    budget: Budget
    parent: str = ""
    call_id: str = ""
    description: str = ""
    depth: int = 0
    continues: str = ""
    # `field(name=...)` is the key in the record, see `events.py`.
    is_compaction: bool = field(name="compacts", default=False)
    history: tuple[Message, ...] = ()
    mode: Mode = Mode.DEFAULT
    inherited_patterns: tuple[tuple[str, ...], ...] = field(name="limits", default=())
    workspace: WorkspaceSpec = WorkspaceSpec()
    content: tuple[TextBlock | ImageBlock, ...] = ()
    name: str = ""
    teammates: tuple[str, ...] = ()
    is_plan: bool = field(name="plan", default=False)
    message_ids: tuple[str, ...] = ()
    board_task: int = 0
    check: Check | None = None
    key: str = ""
    has_own_model: bool = False

    @property
    def blocks(self) -> tuple[TextBlock | ImageBlock, ...]:
        """The blocks of the first user message."""
        return self.content or (TextBlock(self.prompt),)


class ToolDescription(Struct, frozen=True, gc=False):
    """A tool as the model sees it. `parameters`: JSON Schema of the arguments."""

    name: str
    description: str
    parameters: Any


class RequestHead(Struct, frozen=True, omit_defaults=True, gc=False):
    """System prompt and tools: the same in all requests of a run.

    The record of a session has each text once. A head that an earlier event describes has only its
    id.

    Arguments:
        id: digest of the head.
        system, tools: ids of the system prompt and of the tools; earlier events have those that are
            not in `parts`.
        server_tools: names of the tools that the provider runs.
        parts: system prompt and tools that no earlier event has, by id.
    """

    id: str
    system: str = ""
    tools: tuple[str, ...] = ()
    server_tools: tuple[str, ...] = ()
    parts: dict[str, str | ToolDescription] = {}


class InboxMessage(Struct, frozen=True, gc=False):
    """A message to a run while it works.

    Arguments:
        id: unique in the session; a message that is sent twice is delivered once.
        sender: "user", "mudroom", or the run id of the sender.
        kind: "notification": the engine says that background work of the run has ended; `sender`
            is the id of that work. "shutdown": a request to stop, with a deadline.
        name: how the receiver addresses the sender: a name or "parent"; "" without one.
        approve: the answer to a request: a plan, or a request to stop. None in other messages.
        task: id of the task of the board that the engine claimed for the receiver, else 0.
        notes: lines of the engine below the text.
    """

    id: str
    text: str
    sender: str = "user"
    kind: Literal["message", "notification", "shutdown"] = "message"
    name: str = ""
    approve: bool | None = None
    task: int = 0
    notes: tuple[str, ...] = ()


class IgnoredFiles(Struct, frozen=True, gc=False, omit_defaults=True):
    """Files that a run made in its isolated workspace and that are not merged, as git ignores them.

    Arguments:
        count: how many; at most about a thousand are counted. names: the first ones.
        kept: how many are kept beside the work. tree: id of the tree that has them, "" for none.
    """

    count: int
    names: tuple[str, ...]
    kept: int = 0
    tree: str = ""


class GitWork(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a run left in the git folders of its isolated workspace, and not in its files.

    Arguments:
        only: names of what the files lack, such as "stash: WIP on main: 1a2b3c4 first".
        commits: names of the commits whose files are among those of the work.
        unread: git folders that could not be kept as objects, with reasons.
        folder: where the workspace stays because of them, "" if it is removed.
        tree: id of the tree with the kept bundles and staged files, "" if nothing is kept.
    """

    only: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    folder: str = ""
    tree: str = ""


class Work(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a run made of its isolated workspace.

    Arguments:
        base: id of the tree of files at its start. tree: id at its end.
        files: paths of the files that differ, relative to the workspace.
        missing: files that could not be stored, with reasons.
        conflicts: conflicts with which the run began and which it has not resolved. own: id of the
            tree with its own version of these files.
        ignored: files that git ignores and that are left out; None if there are none.
        git: what is only in its git: commits, stashes, staged contents; None if there is nothing.

    Example:
        report = await session.task("Rename the class.", agent="refactor")
        print(report.work.files if report.work else "it shared the folder")
    """

    base: str
    tree: str
    files: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    own: str = ""
    ignored: IgnoredFiles | None = None
    git: GitWork | None = None

    @property
    def trees(self) -> tuple[str, ...]:
        """Ids of the trees that the run made, and of the one that it began with."""
        beside = (each.tree for each in (self.ignored, self.git) if each)
        return (self.base, self.tree, *filter(None, beside))


class MergeCounts(Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of the work of children with isolated workspaces.

    Arguments:
        works: children whose work was to be merged. landed: those whose work was merged.
        after_conflict, after_red: those that landed after a conflict, or after a check that failed.
        checks: commands that succeeded with merged files.
        unmerged: what keeps the other work from landing, by id of the run that did it: "conflict",
            "red" (a check failed), "refused" or "dropped".
        only_in_git: names of commits, stashes and staged files that no merged file has, by id of
            the run whose git has them.

    Example:
        if report.merges:
            print(f"{report.merges.landed} of {report.merges.works}")
    """

    works: int
    landed: int = 0
    after_conflict: int = 0
    after_red: int = 0
    checks: tuple[str, ...] = ()
    unmerged: dict[str, str] = {}
    only_in_git: dict[str, tuple[str, ...]] = {}


class Report(Struct, Generic[T], frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Output of a run.

    Arguments:
        text: the final answer, "" if there is none.
        recovered: true if a limit ended the run and it still gave a summary.
        outputs: emitted values by name; of the requested type if all required ones are there.
        failed_outputs: outputs that the run was asked for as often as it may be, and did not give;
            its reason is then ERROR. () for any other end.
        usage: tokens of the run and all its descendants, as their providers counted.
        usd: US dollars of the run and all its descendants; None if a price is unknown, or is in the
            table of prices and prices are off. 0.0 if the model is free.
        turns: model calls of the run. seconds: wall-clock time.
        calls: number of calls by tool name. failed: how many of those calls were errors.
        files_read, files_changed: paths relative to the workspace as the engine saw them, each
            once, in order.
        observed_changes: the files among `files_changed` that changed while effectful calls ran,
            such as commands; another program or run may have changed them at the same time.
        parallel_runs: ids of the runs, not below this one, whose commands ran at the same time in
            the same files, and that may have changed the observed ones instead.
        unknown_changes: why more files may have changed than those listed, for example because
            commands ran without a sandbox; "" if all changes are known.
        run_id: key of the transcript in the journal.
        spill: path of a file with the whole text if the parent received only a part, else "".
        error: cause of the reason ERROR, or why the run ended before its first turn.
        stopped_commands: background commands that the end of the run stopped.
        has_unknown_usage: true if answers were cut off, here or below; `usage` and `usd` lack them,
            so they are minimums. Budgets count an estimate of them.
        limit: the limit that ended the run, or that a run with the reason GOAL passed; None if it
            was none, or that of a run above, or in records of older versions.
        work: what the run made of its isolated workspace; None if it had none.
        merges: what became of the work of its children with isolated workspaces; None without it.
        unread_messages: messages to named children that no run of theirs has read, by name.
        missing_tools: why tools of MCP servers were missing, one line each.
        is_interrupted: true if the run has not ended: the user interrupted it, its background work
            continues, and it waits for the next prompt.

    Example:
        report: Report = await session.task("Find the author.", agent="explore")
        print(report.text, report.reason, report.usage.total_tokens, report.files_read)
    """

    text: str
    reason: Reason
    run_id: str
    recovered: bool = False
    outputs: T = {}  # pyright: ignore[reportAssignmentType]  (msgspec copies an empty dict)
    usage: Usage = Usage()
    usd: float | None = None
    turns: int = 0
    seconds: float = 0.0
    calls: dict[str, int] = {}
    failed: int = 0
    files_read: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    agent: str = ""
    model: str = ""
    spill: str = ""
    error: str = ""
    observed_changes: tuple[str, ...] = ()
    unknown_changes: str = ""
    has_unknown_usage: bool = False
    limit: LimitState | None = None
    stopped_commands: tuple[str, ...] = ()
    work: Work | None = None
    unread_messages: dict[str, int] = {}
    merges: MergeCounts | None = None
    missing_tools: tuple[str, ...] = ()
    is_interrupted: bool = False
    failed_outputs: tuple[str, ...] = ()
    parallel_runs: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the run reached its goal."""
        return self.reason is Reason.GOAL

    @property
    def files_written(self) -> tuple[str, ...]:
        """The files among `files_changed` that only tools for files wrote."""
        observed = set(self.observed_changes)
        return tuple(path for path in self.files_changed if path not in observed)


def has_summary(report: Report | None) -> bool:
    """Return whether a summary run succeeded. If not, the conversation continues without it."""
    if report is None or not report.text:
        return False
    return report.reason is Reason.GOAL or report.recovered


class RecordedTask(Struct, frozen=True, kw_only=True):
    """A prompt, task or scope in the record of a session.

    Arguments:
        agent: name of its agent. prompt: its text.
        key: id that the caller gave the task, "" for none.
        is_prompt: true for a prompt of the conversation, false for a task or a scope.
        report: its report; None if it has not ended. `outputs` has plain values by name.

    Example:
        def describe(task: RecordedTask) -> str:
            return task.report.text if task.report else "not done"

        print([describe(each) for each in await session.reports()])
    """

    run_id: str
    agent: str
    prompt: str
    key: str = ""
    is_prompt: bool = False
    report: Report | None = None
