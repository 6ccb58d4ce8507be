"""Tree of runs, built from events; its named children, and its open runs and commands.

for work in list_open_work(RunTree.from_events(events), now=time.time()):
    print(work.id, work.title, work.state)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from .._core.events import (
    AnyEvent,
    CheckFinished,
    CheckStarted,
    ConversationRewound,
    Delta,
    MessageDelivered,
    MessageSent,
    ModelCallRetried,
    RunFinished,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    WorkMerged,
)
from .._core.listings import count_noun
from .._core.messages import Usage
from .._core.ports.board import update_claims
from .._core.runs import Brief, InboxMessage, Reason, find_parent_id
from .reason_words import describe_reason
from .run_view import CommandView, RunState, RunView
from .safe_text import describe_call, make_call_title, sanitize_line
from .team import Roster, Teammate

# Characters kept from the end of a streaming answer.
TAIL_LENGTH = 400

_STOPPED = {Reason.TIMEOUT, Reason.MAX_TURNS, Reason.CANCELLED, Reason.BUDGET, Reason.LOOP}


class RunTree:
    """All runs of a session. Ignores events of runs without a start.

    Attributes:
        roster: the named children.
        latest_root: id of the root run that the next prompt continues.
    """

    def __init__(self) -> None:
        self.runs: dict[str, RunView] = {}
        self.roots: list[RunView] = []
        self.roster = Roster()
        self.latest_root = ""
        self._children: dict[str, list[RunView]] = {}

    @staticmethod
    def from_events(events: Iterable[AnyEvent]) -> RunTree:
        """Build the tree from one session's events, oldest first."""
        tree = RunTree()
        for event in events:
            tree.apply(event)
        return tree

    def apply(self, event: AnyEvent) -> None:
        """Add the next event, in constant time; usage takes one step per ancestor."""
        self.roster.apply(event)
        if isinstance(event, ConversationRewound):
            self.latest_root = event.latest_run
        if isinstance(event, RunStarted):
            self._start_run(event)
            return
        run = self.runs.get(event.run)
        if run is None:
            return
        run.last_event_at = event.at
        handler = _HANDLERS.get(type(event))
        if handler:
            handler(run, event)
        if isinstance(event, TurnFinished):
            self._add_usage(run, event.message.usage)
        elif isinstance(event, WorkMerged) and event.child in self.runs:
            self.runs[event.child].merge = event
            self.runs[event.child].is_checking = False
        elif isinstance(event, CheckStarted | CheckFinished):
            for child in event.children:
                if child in self.runs:
                    self.runs[child].is_checking = isinstance(event, CheckStarted)

    def rewind(self, run_id: str) -> None:
        """Return to the state before a root run; the runs stay in the tree."""
        self.latest_root = self.runs[run_id].continues

    def list_conversation(self) -> list[RunView]:
        """List the conversation's root runs, oldest first, without rewound ones."""
        runs: list[RunView] = []
        run = self.runs.get(self.latest_root)
        while run:
            runs.append(run)
            run = self.runs.get(run.continues)
        return runs[::-1]

    def children(self, run_id: str) -> tuple[RunView, ...]:
        """List the runs directly below a run, in order of start."""
        return tuple(self._children.get(run_id, ()))

    def list_waited_for(self, run_id: str) -> list[RunView]:
        """List the children that a run's open calls wait for."""
        calls = self.runs[run_id].open_calls
        children = self.children(run_id)
        return [child for child in children if child.call_id in calls and not child.report]

    def find_command(self, work_id: str) -> CommandView | None:
        """Find a running background command; None if it has ended.

        Arguments:
            work_id: its id, "1.4.b2" for the second one in turn 4 of run "1".
        """
        run = self.runs.get(find_parent_id(work_id))
        return run.commands.get(work_id) if run else None

    def list_background_commands(self, run_id: str) -> list[CommandView]:
        """List the background commands of a run and of all runs below it."""
        runs = self.walk(run_id)
        # Copy: another thread may change the commands meanwhile.
        commands = [command for run in runs for command in list(run.commands.values())]
        return [command for command in commands if command.is_background]

    def walk(self, run_id: str = "") -> Iterator[RunView]:
        """Yield a run and all runs below it, parents first. "": all runs."""
        for run in [self.runs[run_id]] if run_id else list(self.roots):
            yield run
            for child in self.children(run.run_id):
                yield from self.walk(child.run_id)

    def _start_run(self, event: RunStarted) -> None:
        known = self.runs.get(event.brief.run_id)
        if known:  # resumed
            known.report = None
            known.finished_at = 0.0
            known.last_event_at = event.at
            known.state = RunState.RUNNING
            known.open_calls = {}
            return
        run = _make_view(event.brief, event.at)
        run.number = self.roster.get_number(run.run_id)
        self.latest_root = self.latest_root if run.depth else run.run_id
        self.runs[run.run_id] = run
        if run.parent in self.runs:
            self._children.setdefault(run.parent, []).append(run)
        else:
            self.roots.append(run)

    def _add_usage(self, run: RunView, usage: Usage) -> None:
        run.usage += usage
        ancestor = self.runs.get(run.parent)
        while ancestor:
            ancestor.descendant_usage += usage
            ancestor = self.runs.get(ancestor.parent)


def _make_view(brief: Brief, at: float) -> RunView:
    return RunView(
        run_id=brief.run_id,
        parent=brief.parent,
        call_id=brief.call_id,
        agent=brief.agent.name,
        description=brief.description,
        model=brief.model,
        depth=brief.depth,
        prompt=brief.prompt,
        continues=brief.continues,
        name=brief.name,
        budget=brief.budget,
        started_at=at,
        last_event_at=at,
    )


def _discard_stream(run: RunView) -> None:
    run.streamed_tail = ""
    run.streamed_length = 0
    run.pending_retry = None


def _apply_turn_started(run: RunView, event: TurnStarted) -> None:
    run.turn = event.turn
    run.state = RunState.RUNNING
    run.is_interrupted = False
    _discard_stream(run)


def _apply_waiting(run: RunView, event: RunWaiting) -> None:
    run.state = RunState.WAITING
    run.is_interrupted = event.is_interrupted


def _apply_delta(run: RunView, event: Delta) -> None:
    if event.kind in ("progress", "waiting"):
        run.last_action = sanitize_line(event.text, TAIL_LENGTH)
        return
    if event.kind == "output":
        run.output_tail = event.text
        return
    run.pending_retry = None
    run.streamed_length += len(event.text)
    if event.kind == "text":
        run.streamed_tail = (run.streamed_tail + event.text)[-TAIL_LENGTH:]
    elif event.kind.startswith("search_"):
        run.streamed_tail = ""
        run.last_action = sanitize_line(event.text, TAIL_LENGTH)


def _apply_retried(run: RunView, event: ModelCallRetried) -> None:
    _discard_stream(run)
    run.pending_retry = event


def _apply_turn_failed(run: RunView, event: TurnFailed) -> None:
    _discard_stream(run)
    run.error = sanitize_line(event.error, TAIL_LENGTH)


def _find_state(run: RunView) -> RunState:
    if run.open_calls and all(view == "run" for view in run.open_calls.values()):
        return RunState.WAITING
    return RunState.RUNNING


def _apply_call_started(run: RunView, event: ToolCallStarted) -> None:
    run.open_calls[event.call.id] = event.view
    run.state = _find_state(run)
    run.last_action = describe_call(event.call, event.title)
    if event.view == "command":
        title = sanitize_line(event.title or make_call_title(event.call.arguments), TAIL_LENGTH)
        run.commands[event.call.id] = CommandView(event.call.id, title, event.at)


def _apply_call_finished(run: RunView, event: ToolCallFinished) -> None:
    run.open_calls.pop(event.call_id, None)
    run.output_tail = ""
    run.state = _find_state(run)
    run.tool_call_count += not event.refused
    run.failed_calls += event.result.error
    update_claims(run.claims, event.result.detail)
    command = run.commands.pop(event.call_id, None)
    work_id = event.result.detail.get("command")
    if work_id and event.result.detail.get("background"):
        command = command or CommandView(event.call_id, event.name, event.at)
        run.commands[work_id] = CommandView(
            work_id, command.title, command.started_at, True, event.result.spill
        )


def _apply_message_sent(run: RunView, event: MessageSent) -> None:
    run.commands.pop(event.message.sender, None)
    run.unread[event.message.id] = event.message


def _apply_resumed(run: RunView, _: RunResumed) -> None:
    run.commands = {}


def _apply_run_finished(run: RunView, event: RunFinished) -> None:
    run.report = event.report
    run.finished_at = event.at
    if event.report.reason is Reason.GOAL:
        run.state = RunState.DONE
    elif event.report.reason in _STOPPED:
        run.state = RunState.STOPPED
    else:
        run.state = RunState.FAILED
    run.open_calls = {}
    run.commands = {}
    _discard_stream(run)
    run.error = sanitize_line(event.report.error, TAIL_LENGTH) or run.error


_HANDLERS: dict[type[Any], Callable[[RunView, Any], object]] = {
    RunWaiting: _apply_waiting,
    TurnStarted: _apply_turn_started,
    Delta: _apply_delta,
    ModelCallRetried: _apply_retried,
    TurnFinished: lambda run, _: _discard_stream(run),
    TurnFailed: _apply_turn_failed,
    ToolCallStarted: _apply_call_started,
    ToolCallFinished: _apply_call_finished,
    MessageSent: _apply_message_sent,
    MessageDelivered: lambda run, event: run.unread.pop(event.message_id, None),
    RunResumed: _apply_resumed,
    RunFinished: _apply_run_finished,
}


def list_teammates(tree: RunTree) -> list[Teammate]:
    """List the named children, oldest first.

    Includes those of root runs other than prompts, such as a board's tasks.
    """
    if not tree.roster.teammates:
        return []
    tasks = [root.run_id for root in list(tree.roots) if root.depth]
    return tree.roster.list_current_of_roots(tree.latest_root, *tasks)


def list_names(tree: RunTree) -> list[str]:
    teammates = list_teammates(tree)
    return [each.name for each in teammates if not (each.is_replaced or each.is_stopped)]


def list_idle(tree: RunTree) -> list[Teammate]:
    """List the named children that a message would restart."""
    return [teammate for teammate in list_teammates(tree) if teammate.is_idle]


def list_unread(tree: RunTree, run: RunView) -> list[InboxMessage]:
    """List the messages that a run has not read; for a named child, also those to its next run."""
    unread = {} if run.report else dict(run.unread)
    for teammate in list_teammates(tree):
        if teammate.run_id == run.run_id:
            unread = teammate.unread | unread
    return list(unread.values())


def describe_state(teammate: Teammate) -> str:
    """Describe a named child's state: "idle, 2 runs, 0 unread"."""
    state = "replaced by a newer child" if teammate.is_replaced else str(teammate.state)
    if teammate.is_idle and teammate.report and not teammate.report.ok:
        state += f", last run: {describe_reason(teammate.report.reason)}"
    runs = count_noun(len(teammate.briefs), "run")
    return f"{state}, {runs}, {len(teammate.unread):,} unread"


_MAX_TITLE = 200


class OpenWork(Struct, frozen=True, kw_only=True):
    """A run or a background command that has not ended.

    Arguments:
        id: run id; for a command, the place of its call: run, turn and position.
        kind: "run" or "command".
        parent: id of the run that started it; "" for a root run.
        title: the task of a run, or the command.
        agent: name of the agent; "" for a command.
        state: "running", or "waiting" while the run waits for children.
        is_background: true if no call of the parent waits for it.
        seconds: since its start.
        tokens: of the run and all runs below it.

    Example:
        commands: list[OpenWork] = [
            work for work in await session.runs.list_open_work() if work.kind == "command"
        ]
    """

    id: str
    kind: Literal["run", "command"]
    parent: str
    title: str
    agent: str = ""
    state: str = "running"
    is_background: bool = False
    seconds: float = 0.0
    tokens: int = 0


def list_open_work(tree: RunTree, *, now: float) -> list[OpenWork]:
    """List the runs and commands that have not ended, each after the run that started it."""
    work: list[OpenWork] = []
    for run in tree.walk():
        if run.report:
            continue
        work.append(_describe_run(tree, run, now))
        work += [
            OpenWork(
                id=command.id,
                kind="command",
                parent=run.run_id,
                title=command.title,
                is_background=True,
                seconds=max(0.0, now - command.started_at),
            )
            for command in run.commands.values()
            if command.is_background
        ]
    return work


def describe_work(work: Iterable[OpenWork]) -> str:
    kinds = [each.kind for each in work]
    runs = kinds.count("run")
    commands = kinds.count("command")
    counts = [
        f"{runs:,} {'child' if runs == 1 else 'children'}" if runs else "",
        count_noun(commands, "command") if commands else "",
    ]
    return " and ".join(filter(None, counts))


def _describe_run(tree: RunTree, run: RunView, now: float) -> OpenWork:
    parent = tree.runs.get(run.parent)
    return OpenWork(
        id=run.run_id,
        kind="run",
        parent=run.parent,
        title=sanitize_line(run.title, _MAX_TITLE),
        agent=run.agent,
        state=str(run.state),
        is_background=parent is not None and run.call_id not in parent.open_calls,
        seconds=run.count_seconds(now),
        tokens=run.total_usage.total_tokens,
    )
