"""Open work: the runs and background commands of a session that have not ended.

for work in list_open_work(RunTree.from_events(events), now=time.time()):
    print(work.id, work.title, work.state)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from .._core.listings import count_noun
from .run_tree import RunTree
from .run_view import RunView
from .safe_text import sanitize_line

_MAX_TITLE = 200


class OpenWork(Struct, frozen=True, kw_only=True):
    """A run or a background command that has not ended.

    Arguments:
        id: run id; of a command, the place of its call: run, turn and position.
        kind: "run" or "command".
        parent: id of the run that started it; "" for a root run.
        title: the task of a run, or the command.
        agent: name of the agent; "" for a command.
        state: "running", or "waiting" while the run waits for children.
        is_background: true if no call of the parent waits for it.
        seconds: since its start.
        tokens: of the run and of all runs below it.

    Example:
        commands: list[OpenWork] = [
            work for work in await session.list_open_work() if work.kind == "command"
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
    """List the runs and commands that have not ended, each after the run that started it.

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
            for command in run.commands.values()
            if command.is_background
        ]
    return work


def describe_work(work: Iterable[OpenWork]) -> str:
    """Count the children and commands, such as "2 children and 1 command", or ""."""
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
