"""A worker process, seen from the session's process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from ...._core.budgets import Grant
from ...._core.events import RunStarted
from ...._core.ports import Model, ModelConversation, RateLimiter, RequestConfig, WorkerConnection
from ...._core.tools import Tool, ToolResult
from ...._engine.meters.account import Admission
from ...._engine.session_context import SessionServices
from ...._peers import MessageStream, Peer, PeerGone, encode
from ...._platform.time_limits import time_limit
from ....errors import UsageError
from .assigned_run import AssignedRun, ProcessRuns, WorkerLost
from .messages import (
    SENT_BRIEF,
    AddChild,
    AnswerTime,
    AppendEvents,
    AskMemory,
    AskNode,
    CallReply,
    CallSession,
    Cancel,
    Charge,
    EndAdmission,
    ErrorInfo,
    LimiterMessage,
    MemoryReport,
    ModelAppend,
    ModelForget,
    ModelItem,
    ModelRequest,
    ModelStart,
    NodeFacts,
    Pause,
    RequestAdmission,
    RunReply,
    SetWatched,
    ShowEvent,
    StartFailed,
    StartRun,
    ToolSpec,
    ToSession,
    Withdraw,
    WorkerConfig,
    WrapUp,
)
from .node_check import check_node, show_folders
from .rate_limits import LimitedRequests
from .session_calls import STORING_CALLS, SessionCalls
from .tree_transfer import NEEDS_FOLDER, TravellingFiles

ConversationMessage = ModelStart | ModelAppend | ModelForget


class ModelBridge:
    """Conversations with models, held on behalf of a worker process.

    If a model refuses a conversation or a message, the next request gets its error.
    """

    def __init__(
        self, get_model: Callable[[str], Model], send: Callable[[ModelItem], None]
    ) -> None:
        self._get_model = get_model
        self._send = send
        self._conversations: dict[int, ModelConversation | ErrorInfo] = {}

    def handle(self, message: ConversationMessage) -> None:
        if isinstance(message, ModelStart):
            self._conversations[message.conversation] = self._start(message)
        elif isinstance(message, ModelAppend):
            self._append(message)
        else:
            self._conversations.pop(message.conversation, None)

    def close(self) -> None:
        self._conversations.clear()

    def _append(self, message: ModelAppend) -> None:
        conversation = self._conversations[message.conversation]
        if not isinstance(conversation, ErrorInfo):
            try:
                conversation.append(message.message)
            except Exception as error:  # noqa: BLE001  the run in the worker process must end
                self._conversations[message.conversation] = ErrorInfo.of(error)

    def _start(self, message: ModelStart) -> ModelConversation | ErrorInfo:
        config = RequestConfig(
            system=message.system,
            tools=tuple(_offer_tool(spec) for spec in message.tools),
            temperature=message.temperature,
            top_p=message.top_p,
            max_tokens=message.max_tokens,
            provider_tools=message.provider_tools,
            effort=message.effort,
            cache_key=message.cache_key,
        )
        try:
            return self._get_model(message.model).start_conversation(config)
        except Exception as error:  # noqa: BLE001  the run in the worker process must end
            return ErrorInfo.of(error)

    async def answer(self, request: ModelRequest) -> None:
        conversation = self._conversations[request.conversation]
        if isinstance(conversation, ErrorInfo):
            self._send(ModelItem(request.id, conversation))
            return
        async for item in conversation.request_answer(
            tools=request.tools, max_tokens=request.max_tokens
        ):
            self._send(ModelItem(request.id, item))


def _offer_tool(spec: ToolSpec) -> Tool:
    """Make a tool for the model's request; its calls run in the worker process."""

    async def refuse(_: object, __: object) -> ToolResult:
        return ToolResult(f"{spec.name} runs in the worker process", error=True)

    return Tool(
        name=spec.name,
        description=spec.description,
        parameters=spec.parameters,
        parse=dict,
        run=refuse,
    )


_MEMORY_SECONDS = 1.0
"""Longest wait for a worker process to report its memory; if busy for longer, it has no figure."""


class WorkerHandle:
    """Handle of a worker process: starts it, gives it runs, and serves its requests."""

    def __init__(
        self,
        number: int,
        connection: WorkerConnection,
        config: WorkerConfig,
        services: SessionServices,
        get_rate_limiter: Callable[[str], RateLimiter],
        files: TravellingFiles,
    ) -> None:
        self.number = number
        self._connection = connection
        self._stream = MessageStream[ToSession](connection, ToSession)
        self._config = config
        self._services = services
        self._calls = SessionCalls(services, files, lambda run_id: self.find(run_id) is not None)
        self._peer = Peer[msgspec.Struct, int](self.send)
        self._storing = Peer[msgspec.Struct, None](self.send)
        self._limited = LimitedRequests(get_rate_limiter, self.send, self._peer)
        self._runs = ProcessRuns()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bridge: ModelBridge | None = None
        self._starting = asyncio.Lock()
        self._failure = ""
        self._is_draining = False
        self.is_lost = False

    @property
    def load(self) -> int:
        return len(self._runs)

    @property
    def total_load(self) -> int:
        return len(self._runs) + self._connection.other_runs

    @property
    def is_draining(self) -> bool:
        """True if the process gets no further runs, and ends after its last one."""
        return self._is_draining or self._connection.is_draining

    def drain(self) -> bool:
        """Give the process no further runs. Return False if it was draining already."""
        was_draining, self._is_draining = self._is_draining, True
        self._connection.drain()
        return not was_draining

    @property
    def pid(self) -> int | None:
        return self._connection.pid

    @property
    def host(self) -> str:
        """Name of the process's machine, "" while unknown."""
        return self._connection.host

    @property
    def node(self) -> str:
        return self._connection.node

    @property
    def sees_folder(self) -> bool | None:
        """True if the process sees the session's folder; None before its start."""
        return None if self._bridge is None else not self._config.has_own_files

    @property
    def is_unused(self) -> bool:
        """True if the process has not started and no run waits for it to start."""
        return self._bridge is None and not self._runs and not self._starting.locked()

    @property
    def has_stopped(self) -> bool:
        """True if the process was lost, and all work by it or for it has stopped."""
        return self.is_lost and not self._tasks

    def place_on(self, machine: str) -> None:
        self._connection.place_on(machine)

    def list_runs(self) -> tuple[tuple[str, ...], int]:
        return self._runs.list_ids()

    async def read_lease(self) -> float | None:
        """Read how many seconds the process may work without a call; None without a lease."""
        return None if self.pid is None or self.is_lost else await self._connection.read_lease()

    async def read_memory(self) -> int | None:
        """Read the process's memory in bytes; None if it does not answer."""
        if self._bridge is None or self.is_lost:
            return None
        try:
            async with time_limit(_MEMORY_SECONDS):
                return await self._peer.request(AskMemory) or None
        except (TimeoutError, PeerGone):
            return None

    async def wait_until_idle(self) -> None:
        await self._runs.wait_until_idle()

    async def send_run(self, assigned: AssignedRun, grant: Grant) -> None:
        """Send a run to the process; `assigned.on_outcome` is called when it ends.

        Call `forget` afterwards, but not after an error.

        Raises WorkerLost if the process cannot execute the run, and FilesNotReadyError if its files
        cannot be sent.
        """
        self._runs.add(assigned, self._connection)
        self._connection.note_runs(len(self._runs))
        try:
            await self._prepare(assigned)
            if self.is_lost:
                raise WorkerLost(self._failure or self._connection.loss)
        except BaseException:
            self.forget(assigned)
            raise
        state = assigned.make_parent_meter_state()
        former = assigned.select_former_folders(self._services.former_folders)
        self.send(StartRun(assigned.sent_brief, grant, state, assigned.recorded, former))

    async def _prepare(self, assigned: AssignedRun) -> None:
        """Start the process, and prepare a run's files if it does not see the folder."""
        assigned.sent_brief = assigned.brief  # another process may have had other files
        try:
            await self.wait_until_open()
        except UsageError as error:
            raise WorkerLost(str(error)) from error
        if self.is_lost or not self._config.has_own_files:
            return
        events = assigned.recorded.get(assigned.run_id, ())
        if reason := self._calls.files.explain_need(assigned.brief, events):
            raise WorkerLost(NEEDS_FOLDER.format(reason=reason))
        assigned.sent_brief = await self._calls.files.prepare(assigned.brief, events, self.host)

    def forget(self, assigned: AssignedRun) -> None:
        self._runs.remove(assigned)
        self._connection.note_runs(len(self._runs))

    def find(self, run_id: str) -> AssignedRun | None:
        return self._runs.find(run_id)

    def send(self, message: msgspec.Struct) -> None:
        self._stream.send(message)

    def stop(self, request: Cancel | WrapUp) -> None:
        """Ask to stop a run. The process is killed if it does not answer soon."""
        self._runs.expect_end(request.run_id)
        self.send(request)

    async def close(self) -> None:
        self._runs.close()
        self._stream.flush()
        await self._connection.close()
        await self._storing.finish()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peer.stop()

    async def open(self) -> None:
        """Start the process if needed. Raises UsageError if it cannot execute runs."""
        async with self._starting:
            if self._bridge is not None or self.is_lost:
                return
            try:
                await self._connection.open()
                if self._config.is_far:
                    self._config = await self._adapt_config()
                self.send(self._config)
            except BaseException as error:
                self.is_lost = True
                if isinstance(error, UsageError):
                    self._failure = self._failure or str(error)
                await self._connection.close()
                raise
            if self._config.has_own_files:
                self._calls.files.announce(self.host)
            self._bridge = ModelBridge(self._services.get_model, self.send)
            if not self._services.watchers:
                self.tell_watched()
            self._start_task(self._serve(self._bridge))

    async def _adapt_config(self) -> WorkerConfig:
        """Find out what the process sees; return a matching config. Raises UsageError."""
        config = self._config
        async with show_folders((config.folder, config.home)) as nonces:
            self.send(AskNode(nonces, config.import_path, config.tool_references))
            try:
                facts = await self._stream.receive()
            except msgspec.DecodeError as error:
                raise UsageError(f"no worker process: {error}", where="worker") from error
        if not isinstance(facts, NodeFacts):
            reason = facts.reason if isinstance(facts, StartFailed) else self._connection.loss
            raise UsageError(f"no worker process: {reason or 'it has ended'}", where="worker")
        check_node(self.host, facts, can_send_files=self._calls.files.can_send)
        return replace(config, has_own_files=bool(facts.unseen))

    def tell_watched(self) -> None:
        if self._bridge is not None:
            self.send(SetWatched(bool(self._services.watchers)))

    async def wait_until_open(self) -> None:
        """Start the process if needed. A cancel ends the wait, not the start.

        Raises UsageError if it cannot execute runs.
        """
        if self._bridge is None and not self.is_lost:
            await asyncio.shield(self._start_task(self.open()))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, bridge: ModelBridge) -> None:
        handlers = self._make_handlers(bridge)
        try:
            while messages := await self._stream.receive_all():
                appends: list[AppendEvents] = []
                for message in messages:
                    if isinstance(message, AppendEvents):
                        appends.append(message)
                    else:
                        handlers[type(message)](message)
                if appends:
                    self._serve_call(self._storing, appends[0].id, self._append(appends))
                del messages, appends  # may be large, and the next ones may come late
        except msgspec.DecodeError as error:
            self._failure = f"it sent bytes that are not a message: {error}"
        except Exception as error:  # noqa: BLE001  its runs would wait forever
            text = f"{type(error).__name__}: {error}"
            self._failure = f"a message of it could not be handled: {text}"
        self.is_lost = True
        self._peer.end()
        # The runs continue in another process or end. From then on, none of their calls may have an
        # effect, and none of their questions may stay on the user's screen.
        await self._peer.stop()
        self._limited.close()
        bridge.close()
        self._calls.files.transfers.end_reads(self._calls)
        # First store all events the process has sent: a run continues from them.
        await self._storing.finish()
        await self._connection.wait_until_stopped()
        self._runs.close()
        self._runs.lose(self._failure or self._connection.loss)

    def _make_handlers(self, bridge: ModelBridge) -> dict[type, Callable[[Any], object]]:
        def for_run(handle: Callable[[AssignedRun, Any], object]) -> Callable[[Any], object]:
            def handle_message(message: Any) -> None:  # noqa: ANN401
                if run := self._runs.get(message.run_id):  # otherwise it has ended here
                    handle(run, message)

            return handle_message

        return {
            CallSession: self._start_call,
            Withdraw: lambda message: self._peer.cancel(message.id),
            ModelRequest: lambda message: self._start_answer(message, bridge),
            RequestAdmission: for_run(self._admit),
            EndAdmission: for_run(
                lambda run, message: run.end_request(message.id, is_unsent=message.is_unsent)
            ),
            AddChild: for_run(
                lambda run, message: self.send(CallReply(message.id, encode(run.add_child())))
            ),
            **dict.fromkeys(get_args(LimiterMessage), self._limited.handle),
            **dict.fromkeys(get_args(ConversationMessage), bridge.handle),
            ShowEvent: lambda message: self._services.watchers.show(message.event),
            Charge: for_run(self._charge),
            Pause: for_run(lambda run, message: run.set_paused(message.paused)),
            AnswerTime: for_run(lambda run, message: self.send(run.learn_seconds(message.seconds))),
            RunReply: for_run(_pass_reply_on),
            MemoryReport: lambda message: self._peer.settle(message.id, message.size),
            StartFailed: self._note_failure,
            NodeFacts: lambda _: None,
        }

    def _note_failure(self, message: StartFailed) -> None:
        self._failure = message.reason

    def _start_call(self, call: CallSession) -> None:
        peer = self._storing if call.name in STORING_CALLS else self._peer
        self._serve_call(peer, call.id, self._reply(call))

    async def _reply(self, call: CallSession) -> None:
        self.send(await self._calls.execute(call))

    def _serve_call(
        self, peer: Peer[Any, Any], number: int, work: Coroutine[Any, Any, None]
    ) -> None:
        peer.serve(
            number, work, lambda error: self.send(CallReply(number, error=ErrorInfo.of(error)))
        )

    def _start_answer(self, request: ModelRequest, bridge: ModelBridge) -> None:
        self._peer.serve(
            request.id,
            bridge.answer(request),
            lambda error: self.send(ModelItem(request.id, ErrorInfo.of(error))),
        )

    def _admit(self, run: AssignedRun, request: RequestAdmission) -> None:
        admitting = run.admit(self._services.meters.gate, request)
        self._serve_call(self._peer, request.id, self._reply_admission(request.id, admitting))

    async def _reply_admission(self, number: int, admitting: Awaitable[Admission]) -> None:
        self.send(CallReply(number, encode(await admitting)))

    async def _append(self, messages: Sequence[AppendEvents]) -> None:
        """Store the events of several messages together, and reply to each."""
        try:
            messages = [self._add_brief(message) for message in messages]
            events = [event for message in messages for event in message.events]
            last = await self._services.journal.append(*events)
        except Exception as error:  # noqa: BLE001  the run in the worker process must end
            if len(messages) == 1:
                self.send(CallReply(messages[0].id, error=ErrorInfo.of(error)))
            else:  # one run's events may be the cause: the others are stored separately
                for message in messages:
                    await self._append([message])
            return
        position = last - len(events)
        for message in messages:
            position += len(message.events)
            self._note_stored(message, position)
        # A watcher may raise, but by now all messages have their reply.
        for message in messages:
            for event in message.events[message.shown :]:
                self._services.watchers.show(event)

    def _add_brief(self, message: AppendEvents) -> AppendEvents:
        """Restore the brief that was sent, if the message's first event starts that run."""
        first = message.events[0] if message.events else None
        if not isinstance(first, RunStarted) or first.brief != SENT_BRIEF:
            return message
        started = replace(first, brief=self._runs[first.run].sent_brief)
        return replace(message, events=(started, *message.events[1:]))

    def _note_stored(self, message: AppendEvents, position: int) -> None:
        events = message.events
        if events and (run := self.find(events[0].run)):
            run.add(events)
        for event in events:
            self._services.teams.observe(event)
        self.send(CallReply(message.id, encode(position)))

    def _charge(self, run: AssignedRun, message: Charge) -> None:
        run.charge(message)
        if run.meter.parent is not None and run.meter.parent.has_shared_limits:
            self.send(run.make_parent_meter_state())


def _pass_reply_on(run: AssignedRun, message: RunReply) -> None:
    if message.report is not None:
        run.on_outcome(message.report)
    elif message.error is not None:
        run.on_outcome(message.error.to_exception())
