"""BackgroundWork: one run's open background work, and the messages that report its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .._core.events import RunWaiting
from .._core.messages import ToolCallBlock
from .._core.ports import RunHandle, Worker
from .._core.runs import InboxMessage, Reason
from .._core.tools import ToolResult
from .._platform.time_limits import time_limit
from .._projections.engine_text import quote
from .inbox import Inbox, make_end_id, make_notification
from .phase import Phase, RunControl
from .session_context import Recorder

STILL_RUNNING = "Still running in the background: "

_COMMANDS_NOTE = (
    STILL_RUNNING + "{commands}. Call wait to wait for them. "
    "If you end your turn again, they are stopped."
)


class WorkHandle(Struct, frozen=True):
    """Running background work and the task that waits for it to end.

    `handle` is None for a command. `cancel` takes the reason that a child's report will give.
    """

    title: str
    task: asyncio.Task[None]
    cancel: Callable[[Reason], object]
    handle: RunHandle | None = None


class BackgroundWork:
    """Background work of one run: children and commands.

    `wait_scope` returns the scope to enter while the run waits for others; see `Meter.lend_share`.

    Attributes:
        open: running work by id, in order of start.
        interrupted: calls whose work an earlier process left unfinished, by work id.
        titles: titles of all work so far by id: agent and task of a child, or the command.
        waited_for: work that calls are waiting for, by id, with the function that ends the wait.
        stopped_commands: commands stopped because the run ended.
        ending: children whose calls were cut off by the end of the run, while they summarise.
    """

    def __init__(
        self,
        worker: Worker,
        inbox: Inbox,
        recorder: Recorder,
        control: RunControl,
        wait_scope: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.worker = worker
        self.open: dict[str, WorkHandle] = {}
        self.interrupted: dict[str, ToolCallBlock] = {}
        self.titles: dict[str, str] = {}
        self.waited_for: dict[str, Callable[[], object]] = {}
        self.stopped_commands: tuple[str, ...] = ()
        self.ending: set[RunHandle] = set()
        self._inbox = inbox
        self._recorder = recorder
        self._control = control
        self._wait_scope = wait_scope
        self._waited_in_turn = 0
        self._has_warned = False
        self._sends_notifications = True

    @property
    def children(self) -> dict[str, RunHandle]:
        return {work_id: work.handle for work_id, work in self.open.items() if work.handle}

    @property
    def keeps_run_open(self) -> bool:
        """True if the run must not end yet: a child is working, or the model was not warned."""
        return bool(self.children) or (bool(self.open) and not self._has_warned)

    def list_open(self) -> tuple[str, ...]:
        return tuple(self.open)

    def is_reported(self, work_id: str) -> bool:
        """Return whether the inbox has ever held the notification of this work."""
        return self._inbox.knows(make_end_id(work_id))

    def add_child(
        self, work_id: str, handle: RunHandle, title: str, end: Awaitable[InboxMessage]
    ) -> None:
        """Send a notification when a child ends; awaiting `end` returns it.

        `work_id` is the id of the child's first run, `handle` belongs to its current one.
        """

        async def wait_for_end() -> None:
            self._close(work_id, await end)

        self.titles[work_id] = title
        task = asyncio.create_task(wait_for_end())
        self.open[work_id] = WorkHandle(title, task, handle.cancel, handle)

    def replace_handle(self, work_id: str, handle: RunHandle) -> None:
        if work := self.open.get(work_id):
            self.open[work_id] = replace(work, cancel=handle.cancel, handle=handle)

    def add_command(self, work_id: str, title: str, work: Coroutine[Any, Any, ToolResult]) -> None:
        """Run a command, and send a notification when it ends.

        `work` must end with a result also when it is cancelled.
        """
        command = asyncio.create_task(work)

        async def wait_for_end() -> None:
            result = await command
            status = "failed" if result.error else "completed"
            if command.cancelling():
                status = "stopped"
            message = make_notification(work_id, status, title, quote(result.text))
            self._close(work_id, message, replace(result, text="", display=""))

        self.titles[work_id] = title
        task = asyncio.create_task(wait_for_end())
        # A task that is cancelled before its first step would not run at all.
        loop = asyncio.get_running_loop()
        self.open[work_id] = WorkHandle(title, task, lambda _: loop.call_soon(command.cancel))

    def _close(self, work_id: str, message: InboxMessage, result: ToolResult | None = None) -> None:
        del self.open[work_id]
        if self._sends_notifications:
            self._send(message, result)

    def _send(self, message: InboxMessage, result: ToolResult | None) -> None:
        self._inbox.put(message, result)

    def take_warning(self) -> str:
        """Return the warning that ending the run stops its commands; "" from the second time on."""
        if self._has_warned or not self.open:
            return ""
        self._has_warned = True
        commands = "; ".join(f"{work_id} {work.title}" for work_id, work in self.open.items())
        return _COMMANDS_NOTE.format(commands=commands)

    def restore_wait(self, turn: int) -> None:
        """Note that the record already has a turn's `RunWaiting`."""
        self._waited_in_turn = turn

    async def wait_for_message(self) -> bool:
        """Wait for a message if a child is working. Return whether one is unread."""
        if not self._inbox.has_unread and self.children:
            await self._record_wait(tuple(self.children))
            with self._wait_scope():
                await self._inbox.wait_for_message()
        return self._inbox.has_unread

    async def wait_for_next_prompt(self) -> None:
        while not self._inbox.has_next_prompt:
            await self._inbox.wait_for_next()

    async def _record_wait(self, runs: tuple[str, ...]) -> None:
        if self._waited_in_turn == self._recorder.turn:
            return
        self._waited_in_turn = self._recorder.turn
        await self._recorder.record(self._recorder.make_event(RunWaiting, runs=runs))

    async def wait_for(self, ids: Collection[str], *, wants_all: bool) -> None:
        """Wait until work ends, or a message from the user or a run arrives.

        Without `ids`, any open work counts. `wants_all` waits for all of it, not just the first.
        """
        wanted = ids or tuple(self.open)
        while not self._inbox.has_unread_text:
            ended = [work_id for work_id in wanted if self.is_reported(work_id)]
            if len(ended) == len(wanted) or (ended and not wants_all):
                return
            if not ids and not wants_all and self._inbox.has_unread:
                return
            await self._inbox.wait_for_next()

    def detach(self, work_id: str = "") -> bool:
        """Stop waiting, in one call or in all; the work continues. Return False if none waits."""
        ids = [work_id] if work_id else list(self.waited_for)
        releases = [self.waited_for[each] for each in ids if each in self.waited_for]
        for release in releases:
            release()
        return bool(releases)

    def stop_one(self, work_id: str, *, is_gentle: bool) -> None:
        """Stop open work; if `is_gentle`, a child may give a summary."""
        work = self.open[work_id]
        if is_gentle and work.handle:
            work.handle.wrap_up()
        else:
            work.cancel(Reason.CANCELLED)

    def stop_command(self, work_id: str) -> bool:
        """Stop a command. Return False if no such command works."""
        work = self.open.get(work_id)
        if work is None or work.handle:
            return False
        work.cancel(Reason.CANCELLED)
        return True

    def cancel(self, reason: Reason) -> None:
        """Stop all open work; `reason` is for the reports of children."""
        for work in list(self.open.values()):
            work.cancel(reason)
        for handle in list(self.ending):
            handle.cancel(reason)

    async def stop(self, grace: float | None, reason: Reason) -> None:
        """End all open work, and wait until its notifications are sent.

        Children have `grace` seconds for their summaries. None cancels them at once and sends no
        notification, because the model is not called again. Cancelling the run during the wait
        cancels the children. Their reports give `reason`: the run's limit, or CANCELLED.
        """
        if not self.open:
            return
        self._sends_notifications = grace is not None
        commands = [work for work in self.open.values() if work.handle is None]
        self.stopped_commands = tuple(work.title for work in commands)
        for work in commands:
            work.cancel(reason)
        if grace is not None and self._control.phase is not Phase.CANCELLING:
            await self._wrap_up(grace, reason)
        self.cancel(reason)
        await self._wait_until_ended()

    async def _wrap_up(self, grace: float, reason: Reason) -> None:
        phase = self._control.phase
        self._control.phase = Phase.WAITING_FOR_CHILDREN
        for handle in self.children.values():
            handle.wrap_up(reason)
        try:
            async with time_limit(grace):
                await self._wait_until_ended()
        except asyncio.CancelledError:
            self._control.clear_cancel()
        except TimeoutError:
            pass
        if self._control.phase is Phase.WAITING_FOR_CHILDREN:
            self._control.phase = phase

    async def _wait_until_ended(self) -> None:
        if self.open:
            await asyncio.wait([work.task for work in self.open.values()])
