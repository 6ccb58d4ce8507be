"""Tasks of the board that named children take by themselves while they are idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..._core.agents import WorkspaceKind
from ..._core.board_tasks import BoardTask
from ..._core.ports import Board
from ..._core.runs import InboxMessage, Reason
from ...errors import MudroomError, SessionPaused
from ...projections.board_lines import format_prompt
from ...projections.reason_words import describe_reason
from ...projections.team import Teammate, TeammateState
from ..team_registry import TeamReply
from .members import TeamMembers
from .next_runs import NextRuns

log = logging.getLogger("mudroom")

POLL_SECONDS = 0.5
"""Seconds between two looks at the board while a child is idle: other processes change it, too."""

BOARD = "task board"
"""Name of the sender of a message with a task."""

_UNUSED_CHECK = "the check of task #%d is not used: %s has no isolated workspace"

_END = "When you end your turn, the task is completed, and your answer is its report."
_GIVE_BACK = " To give it back, call task_update with status pending."


class TaskClaims:
    """The claims of the named children of one run whose agent says `claims`.

    A claim is a message to the child: its next run begins with the task. All methods but `close`
    need the lock of the team.

    Arguments:
        begin: starts the next run of an idle child with a message.
        look_with_lock: takes the lock of the team and calls `look`.
    """

    def __init__(
        self,
        members: TeamMembers,
        next_runs: NextRuns,
        begin: Callable[[Teammate, InboxMessage], Awaitable[TeamReply]],
        look_with_lock: Callable[[], Awaitable[None]],
    ) -> None:
        self._members = members
        self._next_runs = next_runs
        self._begin = begin
        self._look_with_lock = look_with_lock
        self._ended: set[str] = set()
        self._refused: set[str] = set()
        self._polling: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Complete the tasks of runs that have ended, and claim the next ones for idle children."""
        board = self._members.run.services.board
        claimers = [each for each in self._members.list_all() if _has_claims(each)]
        if board is None or not claimers:
            return
        try:
            for teammate in claimers:
                await self._end_claim(board, teammate)
            for teammate in filter(self._may_claim, claimers):
                await self._claim(board, teammate)
        except SessionPaused:
            self.close()
            return
        except MudroomError as error:
            log.warning("no task is claimed from the board: %s", error)
            self.close()
            return
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())

    def close(self) -> None:
        """End the polling of the board."""
        if self._polling and self._polling is not asyncio.current_task():
            self._polling.cancel()

    async def _poll(self) -> None:
        while self._next_runs.may_start:
            await asyncio.sleep(POLL_SECONDS)
            if any(map(self._may_claim, self._members.list_all())):
                await self._look_with_lock()

    def _may_claim(self, teammate: Teammate) -> bool:
        """Return whether a child is idle and may take a task.

        It takes tasks only after a run for this prompt: a new prompt alone does not start it.
        """
        return (
            _has_claims(teammate)
            and bool(self._members.list_own_runs(teammate))
            and self._next_runs.may_start
            and teammate.state is TeammateState.IDLE
            and not teammate.is_replaced
            and teammate.name not in self._members.active
            and teammate.name not in self._refused
            and not self._members.list_unread(teammate)
            and not self._next_runs.has_all(teammate)
        )

    async def _end_claim(self, board: Board, teammate: Teammate) -> None:
        """Complete the task of the last run of a child if it has ended, or return the task."""
        brief = teammate.briefs[-1]
        report = teammate.report
        if not brief.board_task or report is None or brief.run_id in self._ended:
            return
        if brief.name in self._members.active:
            return
        is_done = report.reason is Reason.GOAL and teammate.is_merged
        text = report.text
        if not is_done:
            ending = describe_reason(report.reason).capitalize()
            merged = f"{ending}: {report.error or text}"
            text = merged if teammate.is_merged else f"{ending}, but its files are not merged"
        await board.end_claim(brief.run_id, brief.board_task, text, is_done=is_done)
        self._ended.add(brief.run_id)

    async def _claim(self, board: Board, teammate: Teammate) -> None:
        """Claim the next ready task for an idle child, and start a run with it."""
        run_id = self._next_runs.make_run_id(teammate)
        tried = [brief.board_task for brief in teammate.briefs if brief.board_task]
        agent = teammate.briefs[-1].agent.name
        task = await board.claim_next(run_id, teammate.name, agent, tried)
        if task is None:
            return
        if task.check and teammate.briefs[-1].workspace.kind is not WorkspaceKind.ISOLATED:
            log.warning(_UNUSED_CHECK, task.id, teammate.name)
        blockers = [await board.get_task(blocker) for blocker in task.blockers]
        text = _describe(teammate, task, blockers)
        message = InboxMessage(f"{run_id}:task", text, "mudroom", name=BOARD, task=task.id)
        reply = await self._begin(teammate, message)
        if reply.is_error:
            log.warning("%s does not take task #%d: %s", teammate.name, task.id, reply.text)
            self._refused.add(teammate.name)
            await board.end_claim(run_id, task.id, "", is_done=False)


def _has_claims(teammate: Teammate) -> bool:
    return teammate.briefs[-1].agent.claims_tasks


def _describe(teammate: Teammate, task: BoardTask, blockers: list[BoardTask]) -> str:
    end = _END
    if "task_update" in teammate.briefs[-1].tools:
        end += _GIVE_BACK
    return f"Task #{task.id}: {format_prompt(task, blockers)}\n\n{end}"
