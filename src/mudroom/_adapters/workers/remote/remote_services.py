"""Ports for runs in a worker process, which send their calls to the session's process."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from ...._core.budgets import Limit, LimitState
from ...._core.events import AnyEvent, RunStarted, StoredEvent
from ...._core.messages import NO_USAGE, AssistantMessage, Message, Usage
from ...._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    RequestConfig,
    RetryNotice,
    StreamChunk,
)
from ...._core.runs import Brief
from ...._engine.meters.account import Admission, RequestPlan
from ...._engine.meters.meter import SharedTime, is_used
from ...._peers import Peer, encode
from ....errors import BudgetExceeded
from .messages import (
    SENT_BRIEF,
    AddChild,
    AnswerTime,
    AppendEvents,
    CallReply,
    CallSession,
    Charge,
    EndAdmission,
    ErrorInfo,
    ModelAppend,
    ModelForget,
    ModelItem,
    ModelRequest,
    ModelStart,
    ParentMeterState,
    Pause,
    RequestAdmission,
    ShowEvent,
    ToolSpec,
    Withdraw,
)

_decode = msgspec.msgpack.decode


class SessionLink:
    """The worker process's end of the connection: sends messages, and passes on replies.

    `sent_briefs`: briefs of runs the session sent that have not begun, by run id.
    """

    def __init__(
        self, send: Callable[[msgspec.Struct], None], check_lease: Callable[[], None]
    ) -> None:
        self.send = send
        self.check_lease = check_lease
        self._peer = Peer[msgspec.Struct, CallReply](send)
        self._streams: dict[int, asyncio.Queue[ModelItem]] = {}
        self.sent_briefs: dict[str, Brief] = {}
        self.ask = self._peer.request
        self.make_id = self._peer.make_number

    async def call(self, name: str, *arguments: object) -> bytes:
        """Call a service of the session; return its encoded result. See `session_calls`."""
        encoded = encode(arguments)
        reply = await self.ask(lambda number: CallSession(number, name, encoded), Withdraw)
        return reply.result

    def open_stream(self, message: ModelRequest) -> asyncio.Queue[ModelItem]:
        queue: asyncio.Queue[ModelItem] = asyncio.Queue()
        self._streams[message.id] = queue
        self.send(message)
        return queue

    def close_stream(self, request_id: int) -> None:
        self._streams.pop(request_id, None)

    def handle_reply(self, reply: CallReply) -> None:
        if reply.error is None:
            self._peer.settle(reply.id, reply)
        else:
            self._peer.fail(reply.id, reply.error.to_exception())

    def handle_item(self, item: ModelItem) -> None:
        queue = self._streams.get(item.id)
        if queue is not None:
            queue.put_nowait(item)

    def show(self, event: AnyEvent) -> None:
        self.send(ShowEvent(event))


class RemoteJournal:
    """The port Journal for a worker process. The session's process reads its own journal."""

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    async def append(self, *events: StoredEvent) -> int:
        return await self._append(events, shown=len(events))

    async def append_and_show(self, events: Sequence[StoredEvent], shown: int) -> None:
        """Append events in order, and show them, except the first `shown`, shown before."""
        await self._append(tuple(events), shown)

    async def _append(self, events: tuple[StoredEvent, ...], shown: int) -> int:
        sent = self._leave_brief_out(events)
        # Events on their way are stored even if nobody waits, so there is nothing to withdraw.
        reply = await self._link.ask(lambda number: AppendEvents(number, sent, shown))
        # An effect may follow, and this process may have been stopped for a while.
        self._link.check_lease()
        return _decode(reply.result, type=int)

    def _leave_brief_out(self, events: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
        """Leave out a brief that the session sent; it is in a run's first event."""
        first = events[0] if events else None
        if not isinstance(first, RunStarted):
            return events
        if self._link.sent_briefs.pop(first.run, None) is not first.brief:
            return events
        return (replace(first, brief=SENT_BRIEF), *events[1:])

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        names = tuple(kind.__name__ for kind in types)
        for event in _decode(await self._link.call("read", after, names), type=list[StoredEvent]):
            yield event

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        return self.read(after)

    async def close(self) -> None: ...


class RemoteApprover:
    def __init__(self, link: SessionLink) -> None:
        self._link = link

    async def decide(self, request: ApprovalRequest, /) -> ApprovalDecision:
        return _decode(await self._link.call("decide", request), type=ApprovalDecision)


class RemoteParentMeter:
    """The parent meter of a run whose ancestors live in the session's process.

    Its amounts are those of the last received state, plus charges which that state lacks.
    """

    def __init__(self, link: SessionLink, state: ParentMeterState) -> None:
        self._link = link
        self._state = state
        self._sent = 0
        self._unconfirmed: deque[Charge] = deque()
        self._received_at = time.monotonic()

    def update(self, state: ParentMeterState) -> None:
        self._state = state
        self._received_at = time.monotonic()
        while self._unconfirmed and self._sent - len(self._unconfirmed) < state.charges:
            self._unconfirmed.popleft()

    def add_child_turns(self, count: int) -> None:
        self._charge(Charge(self._state.run_id, Usage(), 0.0, turns=count))

    def add_usage(
        self, usage: Usage, usd: float | None, children: int = 0, estimate: Usage = NO_USAGE
    ) -> None:
        self._charge(Charge(self._state.run_id, usage, usd, children, estimate=estimate))

    def _charge(self, charge: Charge) -> None:
        self._sent += 1
        self._unconfirmed.append(charge)
        self._link.send(charge)

    def find_shared_limit(self, fraction: float) -> LimitState | None:
        for state in self._state.shared:
            spent = state.spent + self._sum_unconfirmed(state.name)
            if is_used(spent, state.maximum, fraction):
                return replace(state, spent=spent)
        return None

    @property
    def has_shared_limits(self) -> bool:
        return bool(self._state.shared)

    async def admit(self, plan: RequestPlan, *, is_own: bool) -> Admission:
        run_id = self._state.run_id
        reply = await self._link.ask(
            lambda number: RequestAdmission(number, run_id, plan, is_own),
            lambda number: EndAdmission(number, run_id, is_unsent=True),
        )
        return replace(_decode(reply.result, type=Admission), number=reply.id)

    def end_request(self, number: int) -> None:
        self._link.send(EndAdmission(number, self._state.run_id))

    def compute_amount_left(self, limit: Limit) -> float | None:
        left = self._state.left.get(limit)
        return None if left is None else left - self._sum_unconfirmed(limit)

    async def add_child(self) -> None:
        reply = await self._link.ask(lambda number: AddChild(number, self._state.run_id))
        if refusal := _decode(reply.result, type=str):
            raise BudgetExceeded(refusal)

    def set_paused(self, paused: bool) -> None:
        self._link.send(Pause(self._state.run_id, paused))

    def find_time_below(self) -> SharedTime | None:
        """Find the time for runs below; other runs' approvals do not stop it here."""
        time_below = self._state.time
        if time_below is None:
            return None
        passed = time.monotonic() - self._received_at
        return replace(time_below, seconds=time_below.seconds - passed)

    def learn_seconds(self, seconds: float) -> None:
        if self._state.time is not None:
            self._link.send(AnswerTime(self._state.run_id, seconds))

    def _sum_unconfirmed(self, limit: Limit) -> float:
        if limit is Limit.USD:
            return sum(
                (charge.usd or 0.0) + (charge.estimate.usd or 0.0) for charge in self._unconfirmed
            )
        if limit is Limit.TURNS:
            return sum(charge.turns for charge in self._unconfirmed)
        if limit is Limit.SECONDS:
            return 0.0
        return sum(
            getattr(charge.usage, limit) + getattr(charge.estimate, limit)
            for charge in self._unconfirmed
        )


class RemoteModel:
    """The port Model for a model object that exists only in the session's process."""

    def __init__(self, link: SessionLink, name: str) -> None:
        self.name = name
        self._link = link

    def start_conversation(self, config: RequestConfig, /) -> RemoteModelConversation:
        conversation = RemoteModelConversation(self._link)
        self._link.send(
            ModelStart(
                conversation.id,
                self.name,
                config.system,
                [ToolSpec(tool.name, tool.description, tool.parameters) for tool in config.tools],
                config.temperature,
                config.top_p,
                config.max_tokens,
                config.provider_tools,
                config.effort,
                config.cache_key,
            )
        )
        return conversation

    async def close(self) -> None: ...


class RemoteModelConversation:
    def __init__(self, link: SessionLink) -> None:
        self.id = link.make_id()
        self._link = link

    def __del__(self) -> None:
        self._link.send(ModelForget(self.id))

    def append(self, message: Message) -> None:
        self._link.send(ModelAppend(self.id, message))

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        request = ModelRequest(self._link.make_id(), self.id, tools, max_tokens)
        queue = self._link.open_stream(request)
        is_complete = False
        try:
            while not is_complete:
                item = (await queue.get()).item
                is_complete = isinstance(item, AssistantMessage | ErrorInfo)
                if isinstance(item, ErrorInfo):
                    raise item.to_exception()
                yield item
        finally:
            self._link.close_stream(request.id)
            if not is_complete:
                self._link.send(Withdraw(request.id))
