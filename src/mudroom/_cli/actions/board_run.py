"""`mudroom board run`: works on the board's ready tasks until none are left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ..._adapters.boards.board import TaskBoard
from ..._core.listings import count_noun
from ..._core.ports.board import BoardTask
from ..._core.runs import Report
from ..._platform.event_loop import run_event_loop
from ..._platform.time_limits import time_limit
from ..._projections.board_lines import format_prompt, format_ready, format_task
from ..._projections.safe_text import sanitize_line
from ..._session.session import Session
from ...errors import UnknownName
from ..output.notices.log import show_log
from ..output.progress import print_notice
from ..output.report import explain_failure
from ..output.run_reporter import open_progress
from ..output.signals import handle_signals
from .board import open_board
from .load_permissions import load_permissions
from .load_settings import load_settings
from .open_session import create_session
from .programs.load_programs import list_server_names, load_programs

# Runs per task in this process. A task that fails twice waits for the next `mudroom board run`.
_ATTEMPTS = 2

# Characters of a check command shown in the line for a completed task.
_CHECK_LENGTH = 200

# Seconds between polls of the board while other processes work on its tasks.
_POLL_SECONDS = 0.5


def run_board(cwd: str, *, agent: str, parallel: int, quiet: bool, **flags: object) -> int:
    """Work on the board's tasks; return 0 if all are completed.

    `agent` works on tasks that name none; `flags` are settings.
    """
    return run_event_loop(_run_board(cwd, agent, parallel, quiet=quiet, flags=flags))


async def _run_board(
    cwd: str, agent: str, parallel: int, *, quiet: bool, flags: dict[str, object]
) -> int:
    settings = load_settings(cwd, **flags)
    programs = load_programs(settings, cwd)
    loaded = load_permissions(settings, cwd, servers=list_server_names(programs))
    plain = settings.screen == "plain"
    screen = open_progress(settings.color, verbose=False, quiet=quiet, plain=plain)

    def print_line(text: str) -> None:
        if not quiet:
            screen.print_above(lambda: print_notice(text))

    with open_board(cwd) as board:
        session = create_session(settings, cwd, loaded, programs=programs)
        async with session:
            for notice in session.notices:
                print_line(notice.text)
            session.watch(screen.on_event)
            runner = BoardRunner(board, session, agent, print_line)
            with handle_signals(runner.stop, exits_after=True, must_end=True) as signals, screen:
                with show_log(print_line):
                    await runner.run(parallel)
        return _print_result(board.list_tasks(), signals)


class BoardRunner:
    def __init__(
        self, board: TaskBoard, session: Session, agent: str, print_line: Callable[[str], None]
    ) -> None:
        self._board = board
        self._session = session
        self._agent = agent
        self._print_line = print_line
        self._attempts: dict[int, int] = {}
        self._is_stopped = False
        self._changed = asyncio.Event()

    async def run(self, parallel: int) -> None:
        """Work on ready tasks until none are left, here or in other processes."""
        try:
            await self._work_until_done(parallel)
        except ExceptionGroup as errors:
            # The first error cancelled the other tasks, so it is the one to report.
            raise errors.exceptions[0] from None

    async def _work_until_done(self, parallel: int) -> None:
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while not self._is_stopped:
                running = {task for task in running if not task.done()}
                # Cleared before reading the board, so that no change is missed during the read.
                self._changed.clear()
                if len(running) < parallel and (task := self._claim()):
                    running.add(group.create_task(self._work(task)))
                elif running or self._has_work_elsewhere():
                    await self._wait()
                else:
                    return

    def stop(self) -> bool:
        """Stop all runs. Their tasks become pending again."""
        self._is_stopped = True
        self._changed.set()
        self._session.runs.cancel()
        return True

    def _claim(self) -> BoardTask | None:
        failed = [task for task, count in self._attempts.items() if count >= _ATTEMPTS]
        return self._board.claim_next(f"session {self._session.id[:8]}", without=failed)

    def _has_work_elsewhere(self) -> bool:
        """Return whether another process's task may make further tasks ready when it ends."""
        tasks = self._board.list_tasks()
        return any(task.status == "in_progress" and task.has_process for task in tasks)

    async def _wait(self) -> None:
        # Ends early when one of this process's runs ends.
        with suppress(TimeoutError):
            async with time_limit(_POLL_SECONDS):
                await self._changed.wait()

    async def _work(self, task: BoardTask) -> None:
        if self._is_stopped:
            return
        self._print_line(format_task(task))
        try:
            blockers = [self._board.get(blocker) for blocker in task.blockers]
            report = await self._session.task(
                format_prompt(task, blockers),
                agent=task.agent or self._agent,
                description=f"#{task.id} {task.subject}"[:60],
                check=task.check,
                confirm_check=task.is_imported,
            )
            self._finish(task, report)
        except UnknownName as error:
            if not task.agent:
                raise
            # A retry would not find the agent either.
            self._attempts[task.id] = _ATTEMPTS
            self._release(task, str(error))
        finally:
            self._changed.set()

    def _finish(self, task: BoardTask, report: Report) -> None:
        if not report.ok:
            self._attempts[task.id] = self._attempts.get(task.id, 0) + 1
            self._release(task, explain_failure(report))
            return
        # None if another process took over the task while it ran.
        ready = self._board.complete(task, report.text)
        if ready is None:
            self._print_line(f"#{task.id} was returned to the board; its report is not used")
            return
        check = f"; {sanitize_line(task.check, _CHECK_LENGTH)} green" if task.check else ""
        self._print_line(f"#{task.id} is done{check}{format_ready(ready)}")

    def _release(self, task: BoardTask, reason: str) -> None:
        self._board.release(task, reason)
        self._print_line(f"#{task.id} is not done: {reason}")


def _print_result(tasks: list[BoardTask], signals: list[int]) -> int:
    still_open = [task for task in tasks if task.status != "completed"]
    print(f"{len(tasks) - len(still_open)} of {count_noun(len(tasks), 'task')} completed")
    for task in still_open:
        report = f": {task.report}" if task.is_ready and task.report else ""
        print(format_task(task) + report)
    if signals:
        return 128 + signals[0]
    return 1 if still_open else 0
