"""Pool: the runs that share a meter's limits, and what they need until they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ..._core.budgets import Limit
from ..._core.messages import Usage
from .account import Account

if TYPE_CHECKING:
    from .account import RequestPlan

EXPECTED_TURNS = 3  # per run, until a run of the pool has finished
EXPECTED_ANSWER = 500  # tokens, until the pool has seen an answer
LONGEST_SUMMARY = 1_024  # tokens held for a run's summary, so that it can say something
SHORTEST_SUMMARY = 256  # the same if answers are short
SMALLEST_RATIO = 0.25  # of an estimate, held for a first request at least: prompts differ
IDLE_SECONDS = 15.0  # how long a run that executes tools without a request keeps precedence
SURPRISE = 1.25  # costs higher by this factor correct all expectations
LARGEST_ENDING = 0.25  # fraction of a limit held at most for one run's last turn

PATIENCE = 3
"""How many times over the requests still expected of an older run count until one has finished.

Until then nothing tells how long a run takes, and a younger run going ahead could spend what the
older ones need to finish.
"""


class AnsweredRequest(Struct, frozen=True):
    """A run's last answered request."""

    costs: Mapping[Limit, float]  # by limit
    sent: Mapping[Limit, float]  # the same without the answer
    size: int  # in tokens; a high estimate from before it was sent
    is_cached: bool  # the provider read from its cache, or wrote to it


class Member(Struct):
    """A run as seen by the pools whose limits apply to it."""

    order: int  # older runs have smaller numbers
    waits: int = 0  # above 0 while it waits for other runs or the user, without a request
    is_elsewhere: bool = False  # another process executes the run
    last: AnsweredRequest | None = None  # if a limit applies to it
    on_free: Callable[[], None] | None = None  # called when the run needs less than expected
    is_part: bool = False  # a summary run, taking the place of the run that needs it
    is_asking: bool = False  # while a request of the run waits for a limit
    has_goal: bool = False  # reached its goal; others may need as many requests
    idle_since: float = 0.0  # event loop time when its last request ended

    def start_wait(self) -> None:
        """Count one more wait, and let others use what the run was expected to need."""
        self.waits += 1
        if self.waits == 1:
            self.tell()

    def tell(self) -> None:
        """Recheck the waiting requests."""
        if self.on_free is not None:
            self.on_free()

    def take_place_of(self, other: Member) -> None:
        """Take the precedence of another run that waits for this one."""
        self.order = other.order
        self.is_part = True

    def expect_sent(self, limit: Limit, most: float, size: int) -> float:
        """Predict a request's cost without its answer from the provider's last count.

        While nothing is known, it is `most`, the high estimate for `size` tokens.
        """
        if self.last is None or not self.last.size:
            return most
        return min(most, self.last.sent[limit] * max(1, size / self.last.size))

    def free(self) -> None:
        on_free, self.on_free = self.on_free, None
        if on_free is not None:
            on_free()


class PoolRun(Protocol):
    """A run that shares limits with others, as its meter.

    Attributes:
        is_new: true if the run has had no turn and takes no other run's place.
    """

    member: Member
    turns: int

    @property
    def is_new(self) -> bool: ...

    def walk_up(self) -> Iterator[PoolRun]: ...


class Forecast(Struct):
    """What a begun run is expected to spend until it ends."""

    current: Mapping[Limit, float] = {}  # its open request; empty if there is none
    rest: Mapping[Limit, float] = {}  # the requests expected to follow
    ending: Mapping[Limit, float] = {}  # the last turn, for the summary
    size: int = 0  # tokens of its open request, a high estimate; 0 if there is none
    summary: Mapping[Limit, float] = {}  # the summary itself, without its request
    prices: Mapping[Limit, float] = {}  # per token of an answer

    def sum_all(self, limit: Limit) -> float:
        """Return what the run is expected to use of a limit, including its last turn."""
        parts = (self.current, self.rest, self.ending)
        return sum(part.get(limit, 0) for part in parts)


class Pool:
    """The runs that have begun and not ended, oldest first, and what their answers taught.

    Otherwise runs that share a limit would spend it all at once, and none would reach its end. So
    the pool holds the last turn of every run that has begun, and another run begins only if the
    expected needs of the others are covered as well. Expectations follow the answers seen: a
    distant limit restricts nothing, and a scarce one narrows the fan-out by itself.

    Attributes:
        runs: what each run is expected to spend.
        longest_answer: tokens of the longest answer so far; 0 before the first.
    """

    __slots__ = (
        "_answers",
        "_costs",
        "_endings",
        "_estimated_size",
        "_finished",
        "_finished_turns",
        "_measured_size",
        "_most_turns",
        "_output_tokens",
        "_totals",
        "accounts",
        "longest_answer",
        "runs",
    )

    def __init__(self, accounts: Mapping[Limit, Account]) -> None:
        self.accounts = accounts
        self.runs: dict[PoolRun, Forecast] = {}
        self.longest_answer = 0
        self._answers = 0
        self._output_tokens = 0
        self._costs: dict[Limit, float] = {}
        self._most_turns = 0
        self._finished = 0
        self._finished_turns = 0
        # Sizes of first requests, which are estimated before the provider has counted anything.
        self._estimated_size = 0
        self._measured_size = 0
        # Sums over all runs, so that no request has to walk thousands of them.
        self._totals: dict[Limit, float] = {}
        self._endings: dict[Limit, float] = {}

    @property
    def size_ratio(self) -> float:
        """How many tokens the provider counts in first requests per estimated one."""
        if not self._estimated_size:
            return 1.0
        return max(SMALLEST_RATIO, self._measured_size / self._estimated_size)

    def learn(self, run: PoolRun, costs: Mapping[Limit, float], usage: Usage) -> None:
        """Add what a request cost, and expect the next ones to cost as much."""
        self._answers += 1
        self._output_tokens += usage.output_tokens
        self.longest_answer = max(self.longest_answer, usage.output_tokens)
        _add(self._costs, costs, 1)
        forecast = self.runs.get(run)
        if forecast is None:
            return
        if run.turns == 1 and usage.input_tokens:
            self._estimated_size += forecast.size
            self._measured_size += usage.input_tokens
        sent = {
            limit: max(0, amount - forecast.prices.get(limit, 0) * usage.output_tokens)
            for limit, amount in costs.items()
        }
        is_cached = usage.cache_read_tokens + usage.cache_write_tokens > 0
        run.member.last = AnsweredRequest(costs, sent, forecast.size, is_cached)
        if self._is_surprising(costs, forecast):
            # Others still waiting for their first answers will be surprised as much.
            for other, unknown in list(self.runs.items()):
                if other.member.last is None:
                    self.set_forecast(other, self._expect(unknown, costs, sent))
        self.set_forecast(run, self._expect(forecast, costs, sent))

    def _is_surprising(self, costs: Mapping[Limit, float], forecast: Forecast) -> bool:
        return any(
            amount > SURPRISE * forecast.current.get(limit, amount)
            for limit, amount in costs.items()
        )

    def set_forecast(self, run: PoolRun, forecast: Forecast) -> None:
        """Hold what a run is expected to spend from now on."""
        self._add_sums(run, -1)
        self._most_turns = max(self._most_turns, run.turns)
        self.runs[run] = forecast
        self._add_sums(run, 1)

    def expect_report(self, run: PoolRun, amounts: Mapping[Limit, float]) -> None:
        """Add to what is held for a run's last turn the report of another child."""
        if forecast := self.runs.get(run):
            ending = {
                limit: max(amount, self._cap_ending(limit, amount + amounts.get(limit, 0)))
                for limit, amount in forecast.ending.items()
            }
            self.set_forecast(run, replace(forecast, ending=ending))

    def end_request(self, run: PoolRun) -> None:
        """Forget a run's open request, whose cost is now known."""
        run.member.idle_since = _read_time()
        if forecast := self.runs.get(run):
            self.set_forecast(run, replace(forecast, current={}, size=0))

    def close_run(self, run: PoolRun) -> None:
        if run not in self.runs:
            return
        self._add_sums(run, -1)
        del self.runs[run]
        if not self.runs:  # no rounding error outlives the runs
            self._totals.clear()
            self._endings.clear()
        if run.member.has_goal and not run.member.is_part:
            self._finished += 1
            self._finished_turns += run.turns

    def _add_sums(self, run: PoolRun, sign: int) -> None:
        if forecast := self.runs.get(run):
            for part in (forecast.current, forecast.rest, forecast.ending):
                _add(self._totals, part, sign)
            _add(self._endings, forecast.ending, sign)

    def sum_endings(self, limit: Limit, run: PoolRun) -> float:
        """Return the amount held for the last turns of the other runs."""
        own = self.runs.get(run)
        return self._endings.get(limit, 0) - (own.ending.get(limit, 0) if own else 0)

    def covers(self, limit: Limit, run: PoolRun, forecast: Forecast, left: float) -> bool:
        """Return whether an amount suffices for a run and for those that take precedence.

        Older runs precede one that has begun; all runs that have begun precede a new one. A run
        waiting for others has no precedence, as it may be waiting for this one.

        `forecast` is the run's, including the request in question; `left` remains of the limit.

        For example, each of two runs expects 1,000 tokens for its request (`current`), 2,000 for
        those that follow (`rest`) and 500 for its last turn (`ending`). To go ahead,

        - a new run needs all of its own 3,500, and of the other, which has begun, 500 for the last
          turn and 1,000 + 2,000 for the work: 7,000;
        - the younger of two that have begun needs 1,000 + 500 of its own, the other's 500, and
          1,000 + 3 * 2,000 for the other's work (see PATIENCE; 1,000 + 2,000 once a run of the pool
          has finished): 9,000, or 5,000;
        - the older of the two needs 1,000 + 500 of its own, and the other's 500: 2,000.
        """
        own = self.runs.get(run)
        needed = forecast.current.get(limit, 0) + forecast.ending.get(limit, 0)
        if run.is_new:
            needed += forecast.rest.get(limit, 0)
        others = self._totals.get(limit, 0) - (own.sum_all(limit) if own else 0)
        if needed + PATIENCE * others <= left:
            return True  # avoids walking thousands of runs under a distant limit
        patience = 1 if run.is_new or self._finished else PATIENCE
        work = sum(
            each.current.get(limit, 0) + patience * each.rest.get(limit, 0)
            for each in self._list_earlier(run)
        )
        return needed + self.sum_endings(limit, run) + work <= left

    def has_earlier(self, run: PoolRun) -> bool:
        return any(True for _ in self._list_earlier(run))

    def _list_earlier(self, run: PoolRun) -> Iterator[Forecast]:
        """Yield the forecasts of the working runs that precede this one."""
        above = set(run.walk_up())
        is_new = run.is_new
        now = _read_time()
        for other, forecast in self.runs.items():
            if other in above or other.member.waits:
                continue
            if not (is_new or other.member.order < run.member.order):
                continue
            is_asking = forecast.current or other.member.is_asking
            # A tool, hook or program may be waiting for this very run, and a run in another process
            # for anything. So none holds others back for long without a request.
            limit = 0.0 if other.member.is_elsewhere else IDLE_SECONDS
            if is_asking or now - other.member.idle_since < limit:
                yield forecast

    def forecast(
        self, run: PoolRun, plan: RequestPlan, limits: Iterable[Limit], ratio: float
    ) -> Forecast:
        """Estimate what a run will spend on its next request, on those after it, and on its end.

        `ratio` is `size_ratio`, or 1 for a request whose size the provider has reported.
        """
        answer = self._output_tokens // self._answers if self._answers else EXPECTED_ANSWER
        words = LONGEST_SUMMARY
        if self._answers:
            words = min(words, max(SHORTEST_SUMMARY, 4 * self.longest_answer))
        growth = 1 + answer / max(1, plan.size)  # the next request includes the answer
        requests_left = max(1, self._expect_turns() - run.turns - 1)
        current: dict[Limit, float] = {}
        ending: dict[Limit, float] = {}
        summary: dict[Limit, float] = {}
        for limit in limits:
            sent = ratio * plan.maximum.get(limit, 0)
            sent = run.member.expect_sent(limit, sent, plan.size)
            price = plan.prices.get(limit, 0)
            current[limit] = self._estimate_cost(run, limit, sent + price * answer)
            summary[limit] = price * words
            ending[limit] = self._cap_ending(limit, sent * growth + summary[limit])
        if plan.is_summary:
            return Forecast(current, size=plan.size)
        rest = {limit: requests_left * amount for limit, amount in current.items()}
        return Forecast(current, rest, ending, plan.size, summary, plan.prices)

    def _expect(
        self, forecast: Forecast, costs: Mapping[Limit, float], sent: Mapping[Limit, float]
    ) -> Forecast:
        """Predict what a run will spend if its requests cost as much as an answered one."""
        requests_left = {
            limit: round(amount / forecast.current[limit]) if forecast.current.get(limit) else 1
            for limit, amount in forecast.rest.items()
        }
        return replace(
            forecast,
            current={limit: costs[limit] for limit in forecast.current},
            rest={limit: count * costs[limit] for limit, count in requests_left.items()},
            ending={
                limit: self._cap_ending(limit, sent[limit] + forecast.summary.get(limit, 0))
                for limit in forecast.ending
            },
        )

    def _cap_ending(self, limit: Limit, amount: float) -> float:
        account = self.accounts.get(limit)  # the limit may have been removed
        return amount if account is None else min(amount, LARGEST_ENDING * account.maximum)

    def _expect_turns(self) -> int:
        if self._finished:
            return ceil(self._finished_turns / self._finished)
        return max(EXPECTED_TURNS, self._most_turns + 1)

    def _estimate_cost(self, run: PoolRun, limit: Limit, unknown: float) -> float:
        """Estimate a request's cost from the run's last one, or from those of others."""
        if run.member.last is not None:
            return run.member.last.costs[limit]
        return self._costs.get(limit, 0) / self._answers if self._answers else unknown


def _read_time() -> float:
    """Return the event loop's time, 0 outside one."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0


def _add(sums: dict[Limit, float], amounts: Mapping[Limit, float], sign: int) -> None:
    for limit, amount in amounts.items():
        sums[limit] = sums.get(limit, 0) + sign * amount
