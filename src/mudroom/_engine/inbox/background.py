"""BackgroundWork: the open background work of one run, and the messages that report its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection

from msgspec import Struct

from ..._core.events import RunWaiting
from ..._core.messages import ToolCallBlock
from ..._core.ports import RunHandle, Worker
from ..._core.runs import InboxMessage, Reason
from ..phase import Phase, RunControl
from ..recorder import Recorder
from .inbox import Inbox
from .notification import make_end_id


class OpenChild(Struct, frozen=True):
    """A background child that works, and the task that waits for its end."""

    handle: RunHandle
    title: str
    task: asyncio.Task[None]


class BackgroundWork:
    """Background work of one run.

    Attributes:
        worker: executes all children of the run.
        children: the open children by id, in the order in which they started.
        interrupted: calls of an earlier process whose work is not reported, by id of the work.
        titles: agent and task of each background child so far, by id.
    """

    def __init__(
        self, worker: Worker, inbox: Inbox, recorder: Recorder, control: RunControl
    ) -> None:
        self.worker = worker
        self.children: dict[str, OpenChild] = {}
        self.interrupted: dict[str, ToolCallBlock] = {}
        self.titles: dict[str, str] = {}
        self._inbox = inbox
        self._recorder = recorder
        self._control = control
        self._waited_in_turn = 0

    @property
    def is_open(self) -> bool:
        """True if a child works, so that the run must not end."""
        return bool(self.children)

    def is_reported(self, work_id: str) -> bool:
        """Return whether the end of the work is in the inbox, read or unread."""
        return self._inbox.knows(make_end_id(work_id))

    def add_child(self, handle: RunHandle, title: str, end: Awaitable[InboxMessage]) -> None:
        """Send a notification when a child ends.

        Arguments:
            end: waits for the end of the child and returns the notification.
        """
        self.titles[handle.run_id] = title
        task = asyncio.create_task(self._wait_for_end(handle.run_id, end))
        self.children[handle.run_id] = OpenChild(handle, title, task)

    async def _wait_for_end(self, work_id: str, end: Awaitable[InboxMessage]) -> None:
        message = await end
        del self.children[work_id]
        self._deliver(message)

    def _deliver(self, message: InboxMessage) -> None:
        self._inbox.put(message)

    def restore_wait(self, turn: int) -> None:
        """Remember that the record has the wait of a turn."""
        self._waited_in_turn = turn

    async def wait_for_message(self) -> bool:
        """Wait for a message while children work. Return whether there is an unread one."""
        if not self._inbox.has_unread and self.is_open:
            await self._record_wait(tuple(self.children))
            await self._inbox.wait_for_message()
        return self._inbox.has_unread

    async def _record_wait(self, runs: tuple[str, ...]) -> None:
        if self._waited_in_turn == self._recorder.turn:
            return
        self._waited_in_turn = self._recorder.turn
        await self._recorder.record(self._recorder.make_event(RunWaiting, runs=runs))

    async def wait_for(self, ids: Collection[str], *, wants_all: bool) -> None:
        """Wait until work has ended, or a message of the user or of a run has come.

        Arguments:
            ids: the work; empty for all that is open.
            wants_all: true to wait for the end of all, false for the first.
        """
        wanted = ids or tuple(self.children)
        while not self._inbox.has_unread_text:
            ended = [work_id for work_id in wanted if self.is_reported(work_id)]
            if len(ended) == len(wanted) or (ended and not wants_all):
                return
            if not ids and not wants_all and self._inbox.has_unread:
                return
            await self._inbox.wait_for_next()

    def stop_one(self, work_id: str, *, is_gentle: bool) -> None:
        """Stop one open child. `is_gentle`: it may give a summary."""
        handle = self.children[work_id].handle
        if is_gentle:
            handle.wrap_up()
        else:
            handle.cancel()

    def cancel(self, reason: Reason) -> None:
        """Cancel all open children. `reason`: that of their reports."""
        for child in list(self.children.values()):
            child.handle.cancel(reason)

    async def stop(self, grace: float | None, reason: Reason) -> None:
        """End all open children, and wait until their notifications are sent.

        A cancel of the run during the wait cancels the children.

        Arguments:
            grace: seconds in which they may give their summaries; None cancels them at once.
            reason: reason of the reports of children that are cancelled.
        """
        if not self.children:
            return
        if grace is not None and self._control.phase is not Phase.CANCELLING:
            await self._wrap_up(grace)
        self.cancel(reason)
        await self._wait_until_ended()

    async def _wrap_up(self, grace: float) -> None:
        phase = self._control.phase
        self._control.phase = Phase.WAITING_FOR_CHILDREN
        for child in list(self.children.values()):
            child.handle.wrap_up()
        try:
            async with asyncio.timeout(grace):
                await self._wait_until_ended()
        except asyncio.CancelledError:
            self._control.clear_cancel()
        except TimeoutError:
            pass
        if self._control.phase is Phase.WAITING_FOR_CHILDREN:
            self._control.phase = phase

    async def _wait_until_ended(self) -> None:
        if self.children:
            await asyncio.wait([child.task for child in self.children.values()])
