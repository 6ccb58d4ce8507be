"""One rate limiter per provider for all worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from mudroom import AnyEvent, Reason, Session
from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.workers.remote.messages import CallReply, LimiterMessage, ToSession, ToWorker
from mudroom._adapters.workers.remote.rate_limits import LimitedRequests, RemoteRateLimiter
from mudroom._adapters.workers.remote.remote_services import SessionLink
from mudroom._core.events import ModelCallRetried
from mudroom._core.ports import RateLimited, RateLimiter
from mudroom._peers import MessageStream, Peer, SocketLink
from mudroom.testing.clock import LoopClock, run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..models.test_rate_limit import FixedWindow, TokenBucket
from ..models.test_rate_limit import LimitedRequests as Provider


class Process:
    """A worker process and its end in the session's process, in one event loop."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> RemoteRateLimiter:
        own_end, its_end = socket.socketpair()
        self._ends = [await SocketLink.open(end) for end in (own_end, its_end)]
        self._to_worker = MessageStream[ToSession](self._ends[0], ToSession)
        self._to_session = MessageStream[ToWorker](self._ends[1], ToWorker)
        self._link = SessionLink(self._to_session.send, self._ends[1].check_lease)
        self._peer = Peer[msgspec.Struct, int](self._to_worker.send)
        self.requests = LimitedRequests(lambda _: self._limiter, self._to_worker.send, self._peer)
        self._tasks = [asyncio.create_task(work) for work in (self._serve(), self._receive())]
        return RemoteRateLimiter(self._link, "anthropic")

    async def _serve(self) -> None:
        while (message := await self._to_worker.receive()) is not None:
            assert isinstance(message, LimiterMessage)
            self.requests.handle(message)

    async def _receive(self) -> None:
        while (message := await self._to_session.receive()) is not None:
            assert isinstance(message, CallReply)
            self._link.handle_reply(message)

    async def lose(self) -> None:
        """End the requests as the session does when a worker process has ended."""
        await self._peer.stop()
        self.requests.close()

    async def close(self) -> None:
        await self.lose()
        for end in reversed(self._ends):
            await end.close()
        await asyncio.gather(*self._tasks)


@contextlib.asynccontextmanager
async def open_processes(
    limiter: RateLimiter, count: int
) -> AsyncGenerator[list[tuple[Process, RemoteRateLimiter]]]:
    processes = [Process(limiter) for _ in range(count)]
    try:
        yield [(process, await process.start()) for process in processes]
    finally:
        for process in processes:
            await process.close()


@pytest.mark.parametrize("provider", [TokenBucket, FixedWindow])
def test_64_children_in_eight_processes_cause_as_few_refusals_as_in_one(
    provider: type[TokenBucket | FixedWindow],
) -> None:
    async def run() -> tuple[Provider, float]:
        async with open_processes(AdaptiveRateLimiter(LoopClock()), 8) as processes:
            limiters = [limiter for _, limiter in processes]
            requests = Provider(provider(), refusal=0.05, answer=1.0, limiters=limiters)
            return requests, await requests.run(64)

    requests, seconds = run_virtual(run())
    assert requests.sent <= 1.3 * 128
    assert requests.broken == 0, "a request went out although Retry-After had not passed"
    assert seconds <= 1.25 * 128 / 4


def test_room_that_one_process_learns_holds_for_another() -> None:
    async def run() -> float:
        async with open_processes(AdaptiveRateLimiter(LoopClock()), 2) as processes:
            (_, one), (_, other) = processes
            slot = await one.acquire()
            one.record_accepted(slot, 64)
            one.release(slot)
            await asyncio.sleep(1)
            start = asyncio.get_running_loop().time()
            await asyncio.gather(*(other.acquire() for _ in range(64)))
            return asyncio.get_running_loop().time() - start

    assert run_virtual(run()) == 0


def test_a_process_that_ends_returns_its_slots() -> None:
    async def run() -> int:
        limiter = AdaptiveRateLimiter(LoopClock())
        async with open_processes(limiter, 2) as ((lost, its_limiter), (_, other_limiter)):
            for _ in range(8):
                await its_limiter.acquire()
            waiting = asyncio.create_task(its_limiter.acquire())
            await asyncio.sleep(0.01)
            await lost.lose()
            start = asyncio.get_running_loop().time()
            slots = [await other_limiter.acquire() for _ in range(8)]
            waiting.cancel()
            assert asyncio.get_running_loop().time() == start, "a slot of a lost process counted"
            for slot in slots:
                other_limiter.release(slot)
                other_limiter.release(slot)
            await asyncio.sleep(0.01)
            return limiter._unanswered

    assert run_virtual(run()) == 0


def test_a_request_that_is_cancelled_while_it_waits_has_no_slot() -> None:
    async def run() -> int:
        limiter = AdaptiveRateLimiter(LoopClock())
        async with open_processes(limiter, 1) as ((_, remote),):
            first = await remote.acquire()
            remote.record_refused(first, 20.0)
            remote.release(first)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(remote.acquire(), 5)
            await asyncio.sleep(60)
            return limiter._unanswered

    assert run_virtual(run()) == 0


def test_a_limiter_that_stays_closed_for_long_says_so_in_every_process() -> None:
    async def run() -> None:
        async with open_processes(AdaptiveRateLimiter(LoopClock()), 2) as processes:
            (_, one), (_, other) = processes
            slot = await one.acquire()
            one.record_refused(slot, 3600.0)
            one.release(slot)
            await asyncio.sleep(1)
            with pytest.raises(RateLimited, match="3599 s"):
                await other.acquire()

    run_virtual(run())


async def test_a_refusal_in_one_process_closes_the_provider_for_the_other(tmp_path: Path) -> None:
    times: list[float] = []

    def answer(_: ServerRequest) -> ServerAnswer:
        times.append(time.monotonic())
        refusal = Fault(status=429, headers={"Retry-After": "1"}, body=b"slow down")
        return refusal if len(times) == 1 else "done"

    async with ModelServer(answer) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        async with Session(
            model="anthropic:claude-sonnet-4-5",
            environ=environ,
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            journal="memory",
            sandbox="off",
            worker="process:2",
        ) as session:
            refused = asyncio.Event()

            def watch(event: AnyEvent) -> None:
                if isinstance(event, ModelCallRetried):
                    refused.set()

            session.watch(watch)
            first = asyncio.create_task(session.task("CHILD 1"))
            await refused.wait()
            reports = await asyncio.gather(first, session.task("CHILD 2"))
    assert [report.reason for report in reports] == [Reason.GOAL] * 2
    assert len(times) == 3
    assert all(later - times[0] >= 1.0 for later in times[1:]), times
