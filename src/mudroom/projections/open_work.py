"""Open work: the runs and background commands of a session that have not ended.

commands = BackgroundCommands()
for event in events:
    tree.apply(event)
    commands.apply(event)
for work in list_open_work(tree, commands, now=time.time()):
    print(work.id, work.title, work.state)
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .._core.events import (
    AnyEvent,
    MessageSent,
    RunFinished,
    RunResumed,
    ToolCallFinished,
    ToolCallStarted,
)
from .run_tree import RunTree, RunView
from .safe_text import make_call_title, sanitize_line

_MAX_TITLE = 200


class OpenWork(Struct, frozen=True, kw_only=True):
    """A run or a background command that has not ended.

    Arguments:
        id: run id; of a command, the place of its call: run, turn and position.
        parent: id of the run that started it; "" for a root run.
        title: the task of a run, or the command.
        agent: name of the agent; "" for a command.
        state: "running", or "waiting" while the run waits for children.
        is_background: true if no call of the parent waits for it.
        seconds: since its start.
        tokens: of the run and of all runs below it.

    Example:
        for work in await session.list_open_work():
            print(work.id, work.title, work.seconds)
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


class CommandView(Struct, frozen=True):
    """A background command that works. `id`: the place of its call."""

    id: str
    run_id: str
    title: str
    started_at: float


class BackgroundCommands:
    """The background commands of a session that have not ended, built from its events.

    Attributes:
        open: the commands by id, in the order in which they started.
    """

    def __init__(self) -> None:
        self.open: dict[str, CommandView] = {}
        self._calls: dict[tuple[str, str], tuple[str, float]] = {}

    def apply(self, event: AnyEvent) -> None:
        """Add the next event."""
        if isinstance(event, ToolCallStarted):
            title = event.title or make_call_title(event.call.arguments) or event.call.name
            self._calls[event.run, event.call.id] = sanitize_line(title, _MAX_TITLE), event.at
        elif isinstance(event, ToolCallFinished):
            title, started_at = self._calls.pop((event.run, event.call_id), (event.name, event.at))
            command = event.result.detail.get("command")
            if command and event.result.detail.get("background"):
                self.open[command] = CommandView(command, event.run, title, started_at)
        elif isinstance(event, MessageSent):
            self.open.pop(event.message.id.removesuffix("#end"), None)
        elif isinstance(event, RunFinished | RunResumed):
            self._remove(event.run)

    def _remove(self, run_id: str) -> None:
        """Remove the commands of a run that has ended, or that another process continues."""
        for command in [each for each in self.open.values() if each.run_id == run_id]:
            del self.open[command.id]


def list_open_work(tree: RunTree, commands: BackgroundCommands, *, now: float) -> list[OpenWork]:
    """Return the runs and commands that have not ended, each after the run that started it.

    Arguments:
        now: time in seconds since 1970.
    """
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
            for command in commands.open.values()
            if command.run_id == run.run_id
        ]
    return work


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
