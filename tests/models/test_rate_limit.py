"""Tests of the rate limiter on virtual time: few refusals with a limit, no delay without one."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter, read_room
from mudroom._core.ports import RateLimited, RateLimiter
from mudroom.testing.clock import LoopClock, run_virtual


class TokenBucket:
    """Provider that accepts `rate` requests per second, and four at once after a pause."""

    def __init__(self, rate: float = 4.0) -> None:
        self.rate = rate
        self.tokens = 4.0
        self.at = 0.0

    def refuses(self, now: float) -> float:
        self.tokens = min(4.0, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return 1.0
        self.tokens -= 1
        return 0.0


class FixedWindow:
    """Provider that accepts four requests in each second of the clock."""

    def __init__(self) -> None:
        self.second = -1
        self.count = 0

    def refuses(self, now: float) -> float:
        if int(now) != self.second:
            self.second = int(now)
            self.count = 0
        self.count += 1
        return self.second + 1 - now if self.count > 4 else 0.0


class LimitedRequests:
    """Children that need two answers each; counts requests and violations of the limit."""

    def __init__(
        self,
        provider: TokenBucket | FixedWindow,
        refusal: float,
        answer: float,
        limiters: Sequence[RateLimiter] = (),
    ) -> None:
        self.limiters = limiters or [AdaptiveRateLimiter(LoopClock())]
        self.provider = provider
        self.refusal = refusal
        self.answer = answer
        self.sent = self.broken = self.most_tries = 0
        self.closed_until = 0.0

    async def request(self, generator: random.Random, limiter: RateLimiter) -> None:
        loop = asyncio.get_running_loop()
        tries = 0
        while True:
            tries += 1
            self.most_tries = max(self.most_tries, tries)
            permit = await limiter.acquire()
            self.sent += 1
            self.broken += loop.time() < self.closed_until
            wait = self.provider.refuses(loop.time())
            if not wait:
                await asyncio.sleep(self.answer)
                limiter.record_accepted(permit)
                return limiter.release(permit)
            await asyncio.sleep(self.refusal)
            self.closed_until = max(self.closed_until, loop.time() + wait)
            limiter.record_refused(permit, wait)
            limiter.release(permit)
            await asyncio.sleep(max(wait, generator.random() * 0.5 * 2 ** (tries - 1)))

    async def run(self, children: int) -> float:
        async def child(seed: int) -> None:
            generator = random.Random(seed)
            limiter = self.limiters[seed % len(self.limiters)]
            await self.request(generator, limiter)
            await self.request(generator, limiter)

        async with asyncio.TaskGroup() as group:
            for seed in range(children):
                group.create_task(child(seed))
        return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [(0.001, 0.001), (0.02, 0.2), (0.05, 1.0), (0.1, 0.2), (0.2, 0.5), (0.3, 1.0)],
)
@pytest.mark.parametrize("provider", [TokenBucket, FixedWindow])
def test_64_children_at_four_requests_per_second_cause_few_refusals(
    provider: Callable[[], TokenBucket | FixedWindow], refusal: float, answer: float
) -> None:
    requests = LimitedRequests(provider(), refusal, answer)
    seconds = run_virtual(requests.run(64))
    assert requests.sent <= 1.3 * 128
    assert requests.broken == 0, "a request went out although Retry-After had not passed"
    assert requests.most_tries <= 5
    assert seconds <= 1.25 * 128 / 4


async def _run_children(limiter: AdaptiveRateLimiter, children: int, turns: int) -> float:
    async def child() -> None:
        for _ in range(turns):
            permit = await limiter.acquire()
            await asyncio.sleep(0.2)
            limiter.record_accepted(permit)
            limiter.release(permit)

    async with asyncio.TaskGroup() as group:
        for _ in range(children):
            group.create_task(child())
    return asyncio.get_running_loop().time()


def _on_virtual_time(work: Callable[[AdaptiveRateLimiter], Awaitable[float]]) -> float:
    async def run() -> float:
        return await work(AdaptiveRateLimiter(LoopClock()))

    return run_virtual(run())


@pytest.mark.parametrize("children", [8, 64, 500, 2000])
def test_without_a_limit_a_burst_is_held_once_for_less_than_a_response(children: int) -> None:
    async def run_family(limiter: AdaptiveRateLimiter) -> float:
        return -await _run_children(limiter, 1, 1) + await _run_children(limiter, children, 3)

    assert _on_virtual_time(run_family) <= 0.6 + 0.6 * 0.2 * (children > 8) + 1e-6


async def _count_iterations_to_send(limiter: RateLimiter, requests: int) -> float:
    """Return the iterations of the event loop in which a burst is sent after it was held."""
    sent = 0

    async def send() -> None:
        nonlocal sent
        await limiter.acquire()
        sent += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(requests):
            group.create_task(send())
        await asyncio.sleep(0)
        assert sent == 8
        await asyncio.sleep(0.6 * 0.5)
        iterations = 0
        while sent < requests:
            iterations += 1
            await asyncio.sleep(0)
    return iterations


def test_a_held_burst_is_sent_a_few_requests_at_a_time() -> None:
    iterations = _on_virtual_time(lambda limiter: _count_iterations_to_send(limiter, 500))
    assert 500 / 64 <= iterations <= 500 / 16


async def _cancel_first_of_held_burst(limiter: RateLimiter) -> float:
    requests = [asyncio.create_task(limiter.acquire()) for _ in range(12)]
    await asyncio.sleep(0)
    requests[8].cancel()
    await asyncio.gather(*requests[:8], *requests[9:])
    return asyncio.get_running_loop().time()


def test_a_burst_is_held_for_the_same_time_when_its_first_request_is_cancelled() -> None:
    assert _on_virtual_time(_cancel_first_of_held_burst) == pytest.approx(0.6 * 0.5)


def test_a_burst_of_an_accepted_size_is_not_held() -> None:
    async def twice(limiter: AdaptiveRateLimiter) -> float:
        first = await _run_children(limiter, 200, 1)
        return await _run_children(limiter, 200, 1) - first

    assert _on_virtual_time(twice) == pytest.approx(0.2)


async def _run_after_report(limiter: RateLimiter, room: int, children: int) -> float:
    """Return the seconds of requests that follow one whose response reports room."""
    first = await limiter.acquire()
    await asyncio.sleep(0.2)
    limiter.record_accepted(first, room)
    start = asyncio.get_running_loop().time()
    await asyncio.gather(*(_send(limiter, answer=0.2) for _ in range(children)))
    return asyncio.get_running_loop().time() - start


async def _send(limiter: RateLimiter, answer: float) -> None:
    slot = await limiter.acquire()
    await asyncio.sleep(answer)
    limiter.record_accepted(slot)


@pytest.mark.parametrize(("room", "hold"), [(1000, 0.0), (64, 0.0), (20, 0.12), (0, 0.12)])
def test_a_burst_for_which_the_provider_has_room_is_not_held(room: int, hold: float) -> None:
    seconds = _on_virtual_time(lambda limiter: _run_after_report(limiter, room, 64))
    assert seconds == pytest.approx(0.2 + hold)


def test_room_is_less_by_the_requests_that_the_provider_may_not_have_counted() -> None:
    async def work(limiter: AdaptiveRateLimiter) -> float:
        slow = [asyncio.create_task(_send(limiter, answer=5.0)) for _ in range(7)]
        await asyncio.sleep(0)
        seconds = await _run_after_report(limiter, 64, 64)
        await asyncio.gather(*slow)
        return seconds

    assert _on_virtual_time(work) == pytest.approx(0.2 + 0.12)


@pytest.mark.parametrize(
    ("headers", "room"),
    [
        ({}, None),
        ({"x-ratelimit-remaining-tokens": "9000"}, None),
        ({"x-ratelimit-remaining-requests": "many"}, None),
        ({"x-ratelimit-remaining-requests": "9" * 5000}, None),
        ({"x-ratelimit-remaining-requests": "499"}, 499),
        ({"x-ratelimit-remaining-requests": "499", "x-ratelimit-remaining-tokens": "9009"}, 9),
        (
            {
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-input-tokens-remaining": "2002000",
            },
            49,
        ),
        ({"anthropic-ratelimit-requests-remaining": "0"}, 0),
    ],
)
def test_room_is_what_requests_and_tokens_allow(headers: dict[str, str], room: int | None) -> None:
    assert read_room(headers, request_size=3_000) == room


def test_the_rate_recovers_soon_after_a_single_refusal() -> None:
    async def work(limiter: AdaptiveRateLimiter) -> float:
        permit = await limiter.acquire()
        limiter.record_refused(permit, 1.0)
        limiter.release(permit)
        return await _run_children(limiter, 500, 1)

    assert _on_virtual_time(work) < 10


async def _closed_while_waiting(limiter: AdaptiveRateLimiter) -> float:
    first = await limiter.acquire()
    second = await limiter.acquire()
    limiter.record_refused(first, 5.0)
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(1)
    limiter.record_refused(second, 3600.0)
    with pytest.raises(RateLimited, match="3596 s"):
        await waiting
    return asyncio.get_running_loop().time()


def test_a_wait_longer_than_max_wait_raises_rate_limited() -> None:
    assert _on_virtual_time(_closed_while_waiting) < 6


async def _cancelled_in_the_queue(limiter: AdaptiveRateLimiter) -> float:
    permit = await limiter.acquire()
    limiter.record_refused(permit, 5.0)
    limiter.release(permit)
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(1)
    waiting.cancel()
    await limiter.acquire()
    return asyncio.get_running_loop().time()


def test_a_cancelled_waiter_does_not_block_the_others() -> None:
    assert 5 <= _on_virtual_time(_cancelled_in_the_queue) < 5.1
