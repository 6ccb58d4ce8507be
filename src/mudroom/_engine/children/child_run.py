"""A child run that has started: waits for its end and returns its report to the parent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ..._core.agents import WorkspaceKind
from ..._core.budgets import Grant
from ..._core.ports import RunHandle
from ..._core.runs import Brief, InboxMessage, Reason, Report
from ..._core.tools import ToolResult
from ..call_context import CallContext
from ..child_report import format_report
from ..inbox.notification import choose_status, make_notification
from ..run_context import RunContext
from ..team_text import PLAN_NOTE
from .merge import merge_report

_COPY_NOTE = (
    "\n\n[The child worked in a copy of the folder, which is removed. Nothing is changed here.]"
)

STARTED = (
    "Started {run} in the background. Its report comes by itself as a task-notification; you know "
    "nothing of it before. Go on with other work, or end your turn."
)

NO_REPORT = "a child ended without a report"
"""Reason why the changes of a run are not known."""


def make_start_result(run_id: str) -> ToolResult:
    """Return the result of a call whose child works in the background."""
    detail = {"run": run_id, "background": True}
    return ToolResult(STARTED.format(run=run_id), detail=detail)


async def find_refusal(run: RunContext, brief: Brief, grant: Grant) -> str:
    """Return the reason why a hook refuses a child, "" if it may start.

    Closes the grant of a child that does not start. Raises UsageError if its price is not known.
    """
    refusal = ""
    try:
        run.services.check_price(brief.model, run.services.meters.get(grant))
        if hooks := run.services.hooks:
            refusal = await hooks.on_child_start(run.brief, brief)
    except BaseException:
        run.services.meters.close(grant)
        raise
    if refusal:
        run.services.meters.close(grant)
    return refusal


class ChildRun:
    """A child run that has started.

    Arguments:
        on_end: called with the brief when the run has ended, unless the parent was cut off.
    """

    def __init__(
        self,
        context: CallContext,
        brief: Brief,
        grant: Grant,
        on_end: Callable[[Brief], Awaitable[None]] | None = None,
    ) -> None:
        self._context = context
        self._brief = brief
        self._grant = grant
        self._on_end = on_end
        self.title = f"{brief.agent.name}: {brief.description}"
        self.handle = context.run.background.worker.start(brief, grant)

    def work_in_background(self) -> ToolResult:
        """Return the result of the call now; the end of the child sends a notification."""
        background = self._context.run.background
        background.add_child(self.handle, self.title, self._wait_for_notification())
        return make_start_result(self.handle.run_id)

    async def wait_for_result(self) -> ToolResult:
        """Wait for the end of the child and return the result of the call.

        If the child is detached before its end, it goes on in the background.
        """
        run_id = self._brief.run_id
        run = self._context.run
        windows = run.evidence.open_windows
        window = windows.get(self._brief.call_id)
        if not self._brief.workspace.has_own_files:
            windows[self._brief.call_id] = ChildWindow(self.handle)
        run.background.waited_for[run_id] = self.handle.release
        try:
            has_ended = await self._wait()
        finally:
            del run.background.waited_for[run_id]
        if not has_ended:
            if window:
                windows[self._brief.call_id] = window
            return self.work_in_background()
        try:
            return await self._make_result()
        finally:
            await self._end()

    async def _make_result(self) -> ToolResult:
        """Return the result of the call, after the end of the child."""
        report, below = await self._finish()
        text, spill = self._format(report)
        detail: dict[str, Any] = {"run": report.run_id}
        if below:
            detail["below"] = below
        changes: tuple[str, ...] = ()
        if merged := await merge_report(self._context, report):
            text += f"\n{merged.text}"
            detail["merge"] = merged.state
            changes = merged.files
        is_error = report.reason in (Reason.ERROR, Reason.CANCELLED, Reason.LOST)
        return ToolResult(text, is_error, changes=changes, detail=detail, spill=spill)

    async def _wait_for_notification(self) -> InboxMessage:
        """Wait for the end of the child and return the notification, also after an error."""
        try:
            await self._wait()
            return await self._make_notification()
        except Exception as error:  # noqa: BLE001  the parent continues, as after a failed call
            self._context.run.evidence.unknown_changes = NO_REPORT
            brief = self._brief
            return make_notification(
                brief.run_id, "failed", self.title, str(error), name=brief.name
            )
        finally:
            await self._end()

    async def _make_notification(self) -> InboxMessage:
        """Return the notification, after the end of the child."""
        report, _ = await self._finish()
        if not self._brief.workspace.has_own_files:
            self._context.run.evidence.add_report(report)
        text, _ = self._format(report)
        if merged := await merge_report(self._context, report):
            text += f"\n{merged.text}"
        status = choose_status(report.reason)
        return make_notification(
            self._brief.run_id, status, self.title, text, name=self._brief.name
        )

    async def _wait(self) -> bool:
        """Wait until the child ends or is detached; return whether it has ended.

        If the run is stopped, stop the child for the same reason.
        """
        run = self._context.run
        try:
            return await self.handle.wait()
        except asyncio.CancelledError:
            self.handle.cancel(run.stop_reason)
            with suppress(Exception):  # An error of the child does not replace the cancel.
                await self.handle.report()
            run.services.meters.close(self._grant)
            raise

    async def _finish(self) -> tuple[Report, int]:
        """Return the report of the child, which has ended, and the number of runs below it."""
        run = self._context.run
        try:
            report = await self.handle.report()
            if hooks := run.services.hooks:
                await hooks.on_child_end(run.brief, self._brief, report)
        finally:
            meter = run.services.meters.close(self._grant)
        return report, meter.children

    async def _end(self) -> None:
        """Handle the end of the child, after the merge of its files."""
        if self._on_end:
            await self._on_end(self._brief)

    def _format(self, report: Report) -> tuple[str, str]:
        """Return the report as the parent reads it, and the path of the whole text."""
        text, spill = format_report(self._context, report)
        if self._brief.workspace.kind is WorkspaceKind.COPY and report.turns:
            text += _COPY_NOTE
        if self._brief.is_plan:
            text += "\n" + PLAN_NOTE.format(name=self._brief.name)
        return text, spill


class ChildWindow:
    """The time in which a child works in the workspace of its parent."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle

    async def close(self, result: ToolResult) -> ToolResult:
        """Return the result of the call, cut off or not, with the files of the child."""
        try:
            report = await self._handle.report()
        except Exception:  # noqa: BLE001  the call of the child reports the error
            return replace(result, unknown_changes=NO_REPORT)
        return replace(
            result,
            reads=report.files_read,
            changes=report.files_written,
            observed_changes=report.observed_changes,
            unknown_changes=report.unknown_changes,
        )
