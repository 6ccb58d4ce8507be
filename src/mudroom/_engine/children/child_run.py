"""A started child run: waits for its end and returns its report to the parent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from ..._core.agents import WorkspaceKind
from ..._core.budgets import Grant
from ..._core.events import WorkMerged
from ..._core.ports import RunHandle
from ..._core.runs import Brief, InboxMessage, Reason, Report, make_following_id
from ..._core.tools import ToolResult
from ..._platform.time_limits import time_limit
from ..._projections.engine_text import quote
from ...errors import MudroomError
from ..call_context import CallContext
from ..changes.watch import select_outside
from ..child_report import format_report, join_evidence
from ..inbox import choose_status, make_notification
from ..phase import LIMIT_REASONS, Phase
from ..run_context import RunContext
from ..team_registry import PLAN_NOTE
from .child_brief import (
    allocate,
    make_returned_brief,
)

if TYPE_CHECKING:
    from .members import TeamMembers


_COPY_NOTE = (
    "\n\n[The child worked in a copy of the folder, which is removed. Nothing is changed here.]"
)

STARTED = (
    "Started {run} in the background. Its report comes by itself as a task-notification; you know "
    "nothing of it before. Go on with other work, or end your turn."
)

NO_REPORT = "a child ended without a report"  # the reason why a run's changes are unknown


def make_start_result(run_id: str) -> ToolResult:
    detail = {"run": run_id, "background": True}
    return ToolResult(STARTED.format(run=run_id), detail=detail)


async def find_refusal(run: RunContext, brief: Brief, grant: Grant) -> str:
    """Return why a hook refuses a child, "" if it may start.

    Withdraws the grant of a child that does not start. Raises UsageError if its price is unknown.
    """
    refusal = ""
    try:
        run.services.check_price(brief.model, run.services.meters.get(grant))
        if hooks := run.services.hooks:
            refusal = await hooks.on_child_start(run.brief, brief)
    except BaseException:
        run.services.meters.withdraw(grant)
        raise
    if refusal:
        run.services.meters.withdraw(grant)
    return refusal


class ChildTeam(Protocol):
    """The parent's team, as needed for a named child's runs."""

    members: TeamMembers

    def attach(self, brief: Brief, handle: RunHandle) -> None: ...

    async def handle_end(self, brief: Brief) -> None: ...


class ChildRun:
    """A started child: one run, and more if its work comes back to it.

    `team` is set for a named child, and handles its end.
    """

    def __init__(
        self, context: CallContext, brief: Brief, grant: Grant, team: ChildTeam | None = None
    ) -> None:
        self._context = context
        self._brief = brief
        self._grant = grant
        self._team = team
        self._id = brief.run_id
        self._report: Report | None = None
        self._legs: list[Report] = []
        self._merged: WorkMerged | None = None
        self._next: tuple[Brief, Grant] | None = None
        self._returns = 0
        self.title = f"{brief.agent.name}: {brief.description}"
        self._start()

    def _start(self) -> None:
        self._handle = self._context.run.background.worker.start(self._brief, self._grant)
        if self._team:
            self._team.attach(self._brief, self._handle)

    def work_in_background(self) -> ToolResult:
        """Return the call's result now, and send a notification when the child ends."""
        background = self._context.run.background
        background.add_child(self._id, self._handle, self.title, self._wait_for_notification())
        return make_start_result(self._id)

    async def wait_for_result(self) -> ToolResult:
        """Wait for the child to end and return the call's result.

        A child that is detached before that continues in the background.
        """
        run = self._context.run
        windows = run.evidence.open_windows
        window = windows.get(self._brief.call_id)
        if not self._brief.workspace.has_own_files:
            windows[self._brief.call_id] = ChildWindow(self._handle)
        run.background.waited_for[self._id] = lambda: self._handle.release()
        try:
            with run.meter.lend_share():
                has_ended = await self._wait()
        except BaseException:
            await self._end()  # even after a cancel: an interrupted parent continues
            raise
        finally:
            del run.background.waited_for[self._id]
        if not has_ended:
            if window:
                windows[self._brief.call_id] = window
            return self.work_in_background()
        try:
            return self._make_result()
        finally:
            await self._end()

    def _make_result(self) -> ToolResult:
        report, text, spill = self._format()
        detail: dict[str, Any] = {"run": self._id}
        changes: tuple[str, ...] = ()
        if self._merged:
            detail["merge"] = self._merged.state
            changes = self._merged.files
        is_error = report.reason in (Reason.ERROR, Reason.CANCELLED, Reason.LOST)
        unknown = ""
        if self._brief.workspace.has_own_files:
            unknown = select_outside(report.unknown_changes)
        return ToolResult(
            text, is_error, changes=changes, detail=detail, spill=spill, unknown_changes=unknown
        )

    async def _wait_for_notification(self) -> InboxMessage:
        """Wait for the child to end and return the notification, even after an error."""
        status = "failed"
        try:
            await self._wait()
            report, text, _ = self._format()
            is_shared = not self._brief.workspace.has_own_files
            self._context.run.evidence.add_report(report, is_shared=is_shared)
            status = choose_status(report.reason)
        except Exception as error:  # noqa: BLE001  the parent continues, as after a failed call
            self._context.run.evidence.add_unknown_changes(NO_REPORT)
            text = quote(str(error))
        finally:
            await self._end()
        return make_notification(self._id, status, self.title, text, name=self._brief.name)

    async def _wait(self) -> bool:
        """Wait until the child ends or is detached; return whether it has ended.

        It has ended once its work is merged, or will not come back to it. If the parent is stopped,
        the child's run is stopped first.
        """
        while True:
            try:
                has_ended = await self._handle.wait()
            except asyncio.CancelledError:
                await self._stop()
                raise
            if not has_ended:
                return False
            self._report = await self._finish()
            self._legs.append(self._report)
            self._merged = await self._merge(self._report)
            if not (self._merged and self._merged.returned and await self._return_work()):
                return True

    async def _merge(self, report: Report) -> WorkMerged | None:
        """Merge the child's work; return None if it shared its parent's files."""
        is_isolated = self._brief.workspace.kind is WorkspaceKind.ISOLATED
        if report.work is None and not (is_isolated and report.turns):
            return None
        from .merge import merge_report

        return await merge_report(self._context, self._brief, report, self._prepare_return)

    async def _stop(self) -> None:
        """End the child's run, because its parent is stopped and for the same reason.

        At a limit of the parent, or of a run above it, the child first gives its summary.
        """
        run = self._context.run
        handle = self._handle
        reason = run.stop_reason
        try:
            if reason in LIMIT_REASONS and run.control.phase is not Phase.CANCELLING:
                handle.wrap_up(reason)
                run.background.ending.add(handle)
                with suppress(TimeoutError):
                    async with time_limit(run.timer.choose_grace_below(reason)):
                        await handle.wait()
        finally:
            run.background.ending.discard(handle)
            handle.cancel(reason)
            with suppress(Exception):  # the child's error must not replace the cancel
                await handle.report()
            run.services.meters.close(self._grant)

    async def _finish(self) -> Report:
        run = self._context.run
        try:
            report = await self._handle.report()
            if hooks := run.services.hooks:
                await hooks.on_child_end(run.brief, self._brief, report)
        finally:
            run.services.meters.close(self._grant)
        return report

    async def _prepare_return(self, merged: WorkMerged) -> WorkMerged:
        """Prepare the run in which the child gets its work back, if it may have one.

        Returns the event with that run's id, or with the reason why there is none.
        """
        run = self._context.run
        assert self._report is not None
        may_return = (
            self._report.ok
            and self._returns < run.services.isolation.max_returns
            and run.control.phase is Phase.RUNNING
            and not (self._team and self._team.members.is_stopping(self._brief.name))
        )
        if not may_return:
            return merged
        try:
            self._next = await prepare_return(run, self._brief, merged)
        except ValueError as error:
            note = f"[The work could not go back to the child: {quote(str(error))}]"
            return replace(merged, text=f"{merged.text}\n{note}")
        return replace(merged, returned=self._next[0].run_id)

    async def _return_work(self) -> bool:
        """Start the run in which the child gets its work back. Return whether it started."""
        assert self._merged is not None
        run = self._context.run
        if self._next is None:  # an earlier process recorded the decision
            try:
                self._next = await prepare_return(run, self._brief, self._merged)
            except ValueError:
                return False
        if run.control.phase is not Phase.RUNNING:
            run.services.meters.withdraw(self._next[1])
            return False
        self._brief, self._grant = self._next
        self._next = None
        self._returns += 1
        self._start()
        run.background.replace_handle(self._id, self._handle)
        return True

    async def _end(self) -> None:
        """Have the team handle the child's end, once its files are merged."""
        if self._team:
            await self._team.handle_end(self._brief)

    def _format(self) -> tuple[Report, str, str]:
        assert self._report is not None
        text, spill = format_report(self._context, join_evidence(self._legs))
        if self._brief.workspace.kind is WorkspaceKind.COPY and self._report.turns:
            text += _COPY_NOTE
        if self._brief.is_plan:
            text += "\n" + PLAN_NOTE.format(name=self._brief.name)
        if self._merged:
            text += f"\n{self._merged.text}"
        return self._report, text, spill


async def prepare_return(run: RunContext, brief: Brief, merged: WorkMerged) -> tuple[Brief, Grant]:
    """Prepare the brief and budget of the run in which a child gets its work back.

    `brief` belongs to the run that did the work. Raises ValueError if the budget does not suffice
    or a hook refuses the run.
    """
    try:
        run_id = merged.returned or make_following_id(brief.run_id)
        grant = await allocate(run, run_id, brief.agent, brief.budget.turns)
        next_brief = make_returned_brief(run, brief, merged, grant)
        refusal = await find_refusal(run, next_brief, grant)
    except MudroomError as error:
        raise ValueError(str(error)) from None
    if refusal:
        raise ValueError(refusal)
    return next_brief, grant


class ChildWindow:
    """The time during which a child works in its parent's workspace."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle

    async def close(self, result: ToolResult) -> ToolResult:
        try:
            report = await self._handle.report()
        except Exception:  # noqa: BLE001  the child's call reports the error
            return replace(result, unknown_changes=NO_REPORT)
        return replace(
            result,
            reads=report.files_read,
            changes=report.files_written,
            observed_changes=report.observed_changes,
            unknown_changes=report.unknown_changes,
            parallel_runs=report.parallel_runs,
        )
