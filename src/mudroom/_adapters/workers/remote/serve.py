"""The main loop of a worker process: starts runs and passes messages to them."""

from __future__ import annotations

import asyncio
from functools import partial

from ...._core.ports import RunHandle
from ...._engine.recorded_conversations import PastEvents
from ...._engine.session_context import SessionServices
from ...._peers import MessageStream
from ...._platform.processes import read_memory
from ..local import LocalWorker
from .messages import (
    AskMemory,
    CallReply,
    Cancel,
    Detach,
    ErrorInfo,
    MemoryReport,
    ModelItem,
    ParentMeterState,
    RunReply,
    SendMessage,
    SetWatched,
    StartRun,
    StopCommand,
    ToWorker,
    WrapUp,
)
from .remote_services import RemoteParentMeter, SessionLink


class RunServer:
    """A worker process's runs.

    `past_events` is also `services.past_events`; it gets the events of runs that continue here.
    """

    def __init__(
        self,
        link: SessionLink,
        services: SessionServices,
        past_events: PastEvents,
        max_children: int,
    ) -> None:
        self._link = link
        self._services = services
        self._past_events = past_events
        self._worker = LocalWorker(services, max_children)
        self._parent_meters: dict[str, RemoteParentMeter] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, stream: MessageStream[ToWorker]) -> None:
        while messages := await stream.receive_all():
            for message in messages:
                self._handle(message)

    def _handle(self, message: ToWorker) -> None:
        if isinstance(message, CallReply):
            self._link.handle_reply(message)
        elif isinstance(message, ModelItem):
            self._link.handle_item(message)
        elif isinstance(message, ParentMeterState):
            if parent_meter := self._parent_meters.get(message.run_id):
                parent_meter.update(message)
                handle = self._worker.find(message.run_id)
                if handle and handle.run:
                    handle.run.timer.update_deadline()
        elif isinstance(message, StartRun):
            self._start(message)
        elif isinstance(message, SetWatched):
            self._set_watched(message.is_watched)
        elif isinstance(message, AskMemory):
            self._link.send(MemoryReport(message.id, read_memory()))
        elif handle := self._worker.find(message.run_id):
            _control(handle, message)

    def _set_watched(self, is_watched: bool) -> None:
        self._services.watchers.clear()
        if is_watched:
            self._services.watchers.append(self._link.show)

    def _start(self, message: StartRun) -> None:
        run_id = message.brief.run_id
        parent_meter = RemoteParentMeter(self._link, message.parent_meter)
        self._parent_meters[run_id] = parent_meter
        if not message.past:
            self._link.sent_briefs[run_id] = message.brief
        self._past_events.update(message.past)
        self._services.former_folders.update(message.former_folders)
        for events in message.past.values():
            for event in events:
                self._services.teams.observe(event)
        self._services.meters.open(run_id, message.grant.budget, parent_meter)
        handle = self._worker.start(message.brief, message.grant)
        handle.outcome.add_done_callback(partial(self._start_report, handle, message))

    def _start_report(self, handle: RunHandle, message: StartRun, _: object) -> None:
        """Start a task to report a run that has ended or was cancelled at its start."""
        task = asyncio.create_task(self._report(handle, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, handle: RunHandle, message: StartRun) -> None:
        try:
            ended = RunReply(handle.run_id, await handle.report())
        except Exception as error:  # noqa: BLE001  the session's process raises it again
            ended = RunReply(handle.run_id, error=ErrorInfo.of(error))
        finally:
            self._services.meters.close(message.grant)
            del self._parent_meters[handle.run_id]
            self._link.sent_briefs.pop(handle.run_id, None)  # cancelled at its start
            for past_run in message.past:
                self._past_events.pop(past_run, None)
        self._link.send(ended)


def _control(
    handle: RunHandle, message: SendMessage | WrapUp | Cancel | Detach | StopCommand
) -> None:
    if isinstance(message, SendMessage):
        handle.send(message.message)
    elif isinstance(message, WrapUp):
        handle.wrap_up(message.reason)
    elif isinstance(message, Cancel):
        handle.cancel(message.reason)
    elif isinstance(message, Detach):
        handle.detach(message.work_id)
    else:
        handle.stop_command(message.work_id)
