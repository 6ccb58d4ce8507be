"""Runs: their ids, input (Brief), output (Report), why they end, and messages to them.

An id names a run, or other work that a tool call started. "1" is the root run of the first prompt.
"1.3.2" is the work started by call 2 in turn 3 of run "1". "1.3.2~2" is that child's second run,
begun by the engine. "1.0.alice~1" is a run of a child that an earlier prompt started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import Struct, field

from .agents import Agent, FileConflict, Mode, WorkspaceSpec
from .budgets import Budget, LimitState
from .messages import ImageBlock, Message, TextBlock, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")


class Reason(StrEnum):
    """Why a run ended; set once.

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
        is_from_user: true if it comes from the user and so needs no confirmation.
    """

    command: str
    seconds: float
    is_from_user: bool = False


class Brief(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The complete input of a run; the run knows nothing else.

    Arguments:
        run_id: place of the run in the session: "1" is the first root run, "1.3.2" the child
            started by the second call of its third turn.
        parent: run id of the parent, "" for a root run.
        call_id: id of the parent's tool call that started the run.
        prompt: the first user message as text, with a placeholder for each image.
        content: blocks of that message; () if it is only the text.
        description: three to five words for screens.
        tools: names of the tools in order, already narrowed to what the caller allows.
        model: resolved model string.
        budget: limits after allocation from the parent's budget.
        mode: permission mode, already limited to the caller's.
        inherited_patterns: call patterns of the agents above, which restrict this run as well.
        workspace: the files the run sees.
        depth: 0 for a prompt run, which belongs to the conversation of the session; 1 for a task
            or a scope, and one more than the parent's for a child run. All runs without a parent
            are root runs: prompt runs, tasks and scopes. `budget.depth` counts the levels that may
            still come below.
        continues: run id whose conversation this run continues.
        is_compaction: true if the run summarises that conversation. A run that continues it sees
            only its prompt and answer.
        history: earlier messages of the conversation, oldest first. The journal stores each only
            with the run it comes from.
        name: name of a child that later messages can start again, "" for any other run.
        teammates: name and agent of the other named children when the run began.
        is_plan: true if the run may only read and ends with a plan for its parent to approve.
        message_ids: ids of the messages that make up the prompt and started this run.
        board_task: id of the board task the run works on; 0 if a message or call started it.
        check: must succeed on the run's files at its end, or the run has not reached its goal. None
            for a child run, whose work is checked when it is merged.
        key: id the caller gave a task, "" for none.
        has_own_model: true if the model was chosen for this prompt only.
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
    """System prompt and tools, the same in all requests of a run.

    The record of a session holds each text once: a head described by an earlier event is recorded
    by its id alone.

    Arguments:
        id: digest of the head.
        system, tools: ids of the system prompt and the tools; those not in `parts` were recorded
            by earlier events.
        provider_tools: names of the tools the provider runs. The record calls them `server_tools`.
        parts: system prompt and tools not recorded before, by id.
    """

    id: str
    system: str = ""
    tools: tuple[str, ...] = ()
    provider_tools: tuple[str, ...] = field(default=(), name="server_tools")
    parts: dict[str, str | ToolDescription] = {}


class InboxMessage(Struct, frozen=True, gc=False):
    """A message to a running run.

    Arguments:
        id: unique in the session; a message sent twice is delivered once.
        sender: "user", "mudroom", or the run id of the sender.
        kind: "notification" reports that background work has ended, and `sender` is the id of that
            work; "shutdown" asks the run to stop, with a deadline.
        name: how the receiver addresses the sender: a name or "parent"; "" if it cannot.
        approve: the answer to a plan or to a request to stop; None in other messages.
        task: id of the board task the engine claimed for the receiver, else 0.
        notes: lines the engine adds below the text.
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
    """New files in an isolated workspace that are not merged because git ignores them.

    Arguments:
        count: how many; counting stops at about a thousand.
        names: the first of them.
        kept: how many are stored beside the work.
        tree: id of the tree that stores them, "" for none.
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
    """The changes a run made in its isolated workspace.

    Arguments:
        base: id of the file tree at its start.
        tree: id of the file tree at its end.
        files: paths of the files that differ, relative to the workspace.
        missing: files that could not be stored, with reasons.
        conflicts: conflicts the run started with and has not resolved.
        own: id of the tree with the run's version of the files in conflict.
        ignored: files left out because git ignores them; None if there are none.
        private: permission bits, such as 0o600, of new files that are closed to the group or others
            where new files usually are open to them.
        git: commits, stashes and staged contents that only its git has; None if there are none.

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
    private: dict[str, int] = {}
    git: GitWork | None = None

    @property
    def trees(self) -> tuple[str, ...]:
        """Ids of the tree the run started with and of those it made."""
        beside = (each.tree for each in (self.ignored, self.git) if each)
        return (self.base, self.tree, *filter(None, beside))


class Overlap(Struct, frozen=True, omit_defaults=True):
    """A file that at least two runs changed.

    Arguments:
        path: relative to the folder.
        runs: ids of the runs that changed it.
        kind: "both-modified", "both-added", "modified-deleted", "binary" or "type".
        lines: ranges of changed lines by run, first and last, counted in that run's file.
        is_mergeable: true if git can merge all changes of the file.
    """

    path: str
    runs: tuple[str, ...]
    kind: str
    lines: dict[str, tuple[tuple[int, int], ...]] = {}
    is_mergeable: bool = False

    def describe(self, names: Mapping[str, str]) -> str:
        """Describe the overlap: "a.py: alice 10-24, bob 18-19: conflict (both-modified)"."""
        parts = [f"{names.get(run, run)}{_format_ranges(self.lines.get(run))}" for run in self.runs]
        result = "can be merged" if self.is_mergeable else f"conflict ({self.kind})"
        return f"{self.path}: {', '.join(parts)}: {result}"


def _format_ranges(ranges: tuple[tuple[int, int], ...] | None) -> str:
    if not ranges:
        return ""
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return " " + "+".join(texts)


class MergeCounts(Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of the work of children with isolated workspaces.

    Arguments:
        works: number of children with work to merge.
        landed: how many of them had their work merged.
        after_conflict, after_red: how many landed after a conflict, or after a failed check.
        checks: commands that succeeded on the merged files.
        unmerged: why other work has not landed, by id of the run that did it: "conflict", "red" (a
            check failed), "refused" or "dropped".
        only_in_git: names of commits, stashes and staged files that no merged file has, by id of
            the run whose git has them.

    Example:
        if report.merges:
            print(f"{report.merges.landed} of {report.merges.works}")
            print(report.merges.describe())
    """

    works: int
    landed: int = 0
    after_conflict: int = 0
    after_red: int = 0
    checks: tuple[str, ...] = ()
    unmerged: dict[str, str] = {}
    only_in_git: dict[str, tuple[str, ...]] = {}

    def describe(self) -> str:
        """Describe the counts: "6 of 6 landed; 2 after a conflict; make test green"."""
        parts = [f"{self.landed} of {self.works} landed"] if self.works else []
        after = {"a conflict": self.after_conflict, "a red check": self.after_red}
        if any(after.values()):
            counts = (f"{count} after {what}" for what, count in after.items() if count)
            parts.append(", ".join(counts))
        if self.checks:
            parts.append(f"{', '.join(self.checks)} green")
        if self.only_in_git:
            parts.append(f"only in git: {', '.join(self.only_in_git)}")
        return "; ".join(parts)


class Report(Struct, Generic[T], frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The output of a run.

    Arguments:
        text: the final answer, "" if there is none.
        recovered: true if a limit ended the run but it still gave a summary.
        outputs: emitted values by name; of the requested type if all required ones are there.
        failed_outputs: outputs the run failed to give although it was asked repeatedly; its reason
            is then ERROR. () otherwise.
        usage: tokens of the run and all its descendants, as counted by their providers.
        usd: US dollars of the run and all its descendants; None if a price is unknown or prices are
            switched off, 0.0 if the model is free.
        turns: model calls of the run. seconds: wall-clock time.
        calls: number of calls by tool name. failed: how many of those calls failed.
        files_read, files_changed: paths relative to the workspace as the engine saw them, each
            once, in order.
        observed_changes: the files among `files_changed` that changed while effectful calls such
            as commands ran; another program or run may have changed them at that time.
        parallel_runs: ids of runs outside this one's tree whose commands ran on the same files at
            the same time, and may have made the observed changes instead.
        unknown_changes: why unlisted files may have changed, for example because commands ran
            without a sandbox; "" if all changes are known.
        run_id: key of the transcript in the journal.
        spill: path of a file with the whole text if the parent received only a part, else "".
        error: cause of the reason ERROR, or why the run ended before its first turn.
        stopped_commands: background commands stopped by the end of the run.
        has_unknown_usage: true if answers were cut off, here or below. `usage` and `usd` do not
            include them and so are minimums; budgets count an estimate.
        limit: the limit that ended the run, or that a run with the reason GOAL exceeded; None if
            there was none, if it was an ancestor's, or in records of older versions.
        work: the changes in its isolated workspace; None if it had none.
        merges: what became of the isolated work of its children; None if there was none.
        unread_messages: number of messages to named children that none of their runs has read, by
            name.
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
        """The files among `files_changed` written only by file tools."""
        observed = set(self.observed_changes)
        return tuple(path for path in self.files_changed if path not in observed)


def has_summary(report: Report | None) -> bool:
    """Return whether a summary run succeeded; if not, the conversation continues uncompacted."""
    if report is None or not report.text:
        return False
    return report.reason is Reason.GOAL or report.recovered


class RecordedTask(Struct, frozen=True, kw_only=True):
    """A prompt, task or scope in the record of a session.

    Arguments:
        agent: name of its agent. prompt: its text.
        key: id the caller gave the task, "" for none.
        is_prompt: true for a prompt of the conversation, false for a task or a scope.
        report: its report, with `outputs` as plain values by name; None if it has not ended.

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


_NEXT = "~"


def join_run_id(parent: str, turn: int, position: int | str) -> str:
    return f"{parent}.{turn}.{position}"


def split_run_id(run_id: str) -> tuple[str, int, str]:
    """Split a work id into parent, turn and position of the call. Raises ValueError for a root."""
    parent, turn, position = run_id.rsplit(".", 2)
    return parent, int(turn), position


def is_child_id(run_id: str) -> bool:
    """Return whether another run started this one."""
    return "." in run_id


def find_parent_id(run_id: str) -> str:
    """Return the id of the run that started this work, "" for a root run."""
    return run_id.rsplit(".", 2)[0] if is_child_id(run_id) else ""


def find_root_id(run_id: str) -> str:
    """Return the id of the root run above a run; a root run is its own."""
    return run_id.partition(".")[0]


def list_above(run_id: str) -> Iterator[str]:
    """Yield the ids of a run's ancestors, nearest first."""
    while run_id := find_parent_id(run_id):
        yield run_id


def count_above(run_id: str) -> int:
    return run_id.count(".") // 2


def is_run_above(run_id: str, other: str) -> bool:
    return other.startswith(f"{run_id}.")


def make_next_id(first: str, number: int) -> str:
    """Make the id of a child's further run. `number`: its number under this parent, from 1."""
    return f"{first}{_NEXT}{number}"


def make_first_id(parent: str, name: str) -> str:
    """Make the id a child has under a run that did not start it itself."""
    # Turn 0: turns of tool calls count from 1, so no call can have this id.
    return join_run_id(parent, 0, name)


def find_first_id(run_id: str) -> str:
    """Return the id of a child's first run, or the id its runs under this parent begin with."""
    parent, dot, place = run_id.rpartition(".")
    return parent + dot + place.partition(_NEXT)[0]


def make_following_id(run_id: str) -> str:
    """Make the id of the run that follows this run of a child."""
    first = find_first_id(run_id)
    number = int(run_id.removeprefix(first).lstrip(_NEXT) or 1)
    return make_next_id(first, number + 1)


def is_next_run(run_id: str) -> bool:
    return _NEXT in run_id.rpartition(".")[2]


def make_sort_key(run_id: str) -> list[tuple[int, str]]:
    parts = re.split(f"[.{_NEXT}]", run_id)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
