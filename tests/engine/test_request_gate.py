"""The gate for model requests: parallel runs wait where together they could pass a limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mudroom import Budget, Usage
from mudroom._core.budgets import Limit, LimitState
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.request_gate import RequestGate
from mudroom._engine.meters.request_plan import LONGEST_ANSWER, Admission, Permit, RequestPlan
from mudroom.session_runs.meter import SessionMeter
from mudroom.testing.clock import LoopClock

PRICES = {Limit.OUTPUT_TOKENS: 1.0, Limit.TOTAL_TOKENS: 1.0}


def make_plan(tokens: int = 100, *, is_summary: bool = False) -> RequestPlan:
    amounts = {Limit.INPUT_TOKENS: tokens, Limit.TOTAL_TOKENS: tokens}
    return RequestPlan(amounts, amounts, PRICES, 16, is_summary=is_summary)


async def admit(gate: RequestGate, meter: Meter, tokens: int = 100) -> Permit:
    permit = await gate.admit(meter, make_plan(tokens))
    assert isinstance(permit, Permit)
    return permit


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_answer_is_cut_to_what_is_left() -> None:
    meter = Meter(Budget(total_tokens=1_000))
    permit = await admit(RequestGate(), meter)
    assert permit.max_tokens == 900
    assert permit.cut_by == LimitState(Limit.TOTAL_TOKENS, 1_000, 0)


async def test_requests_run_side_by_side_where_all_fit() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=4 * LONGEST_ANSWER))
    permits = [await admit(gate, root.allocate(Budget())) for _ in range(3)]
    assert [permit.max_tokens for permit in permits] == [LONGEST_ANSWER] * 3
    assert all(permit.cut_by is None for permit in permits)


async def test_a_permit_that_comes_as_its_request_is_cancelled_counts_no_turn() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    first, second = root.allocate(Budget()), root.allocate(Budget())
    permit = await admit(gate, first)
    waiting = asyncio.create_task(admit(gate, second))
    await settle()
    first.charge(Usage(100, 300))
    permit.end()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
    assert (second.turns, root.requests) == (0, [])


async def test_a_turn_that_is_taken_back_is_free_for_the_next_request() -> None:
    gate = RequestGate()
    session = SessionMeter(Budget(turns=2, total_tokens=1_000), LoopClock())
    first, second = Meter(Budget(), session), Meter(Budget(), session)
    permit = await admit(gate, first)
    waiting = asyncio.create_task(admit(gate, second))
    await settle()
    permit.withdraw()
    assert (await waiting).max_tokens == 900
    assert (first.turns, second.turns, session.turns) == (0, 1, 1)


async def test_a_request_waits_until_the_others_leave_enough() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    first, second = root.allocate(Budget()), root.allocate(Budget())
    permit = await admit(gate, first)
    waiting = asyncio.create_task(admit(gate, second))
    await settle()
    assert not waiting.done()
    first.charge(Usage(100, 300))
    permit.end()
    assert (await waiting).max_tokens == 500


async def test_a_waiting_request_is_refused_when_nothing_is_left() -> None:
    gate = RequestGate()
    root = Meter(Budget(output_tokens=1_000))
    first, second = root.allocate(Budget()), root.allocate(Budget())
    permit = await admit(gate, first)
    waiting = asyncio.create_task(gate.admit(second, make_plan()))
    await settle()
    first.charge(Usage(100, 1_000))
    permit.end()
    assert await waiting == LimitState(Limit.OUTPUT_TOKENS, 1_000, 1_000)


async def test_waiting_requests_start_in_their_order() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=2 * LONGEST_ANSWER))
    permit = await admit(gate, root.allocate(Budget()), LONGEST_ANSWER // 2)
    order: list[int] = []

    async def take(number: int, tokens: int) -> None:
        taken = await admit(gate, root.allocate(Budget()), tokens)
        order.append(number)
        taken.end()

    large = asyncio.create_task(take(1, LONGEST_ANSWER // 2))
    await settle()
    small = asyncio.create_task(take(2, 10))
    await settle()
    assert order == [], "a small request does not overtake a large one"
    permit.end()
    await asyncio.gather(large, small)
    assert order == [1, 2]


async def test_runs_below_other_limits_do_not_wait() -> None:
    gate = RequestGate()
    root = Meter(Budget())
    tight = root.allocate(Budget(total_tokens=1_000))
    await admit(gate, tight)
    waiting = asyncio.create_task(admit(gate, tight.allocate(Budget())))
    await settle()
    await admit(gate, root.allocate(Budget(total_tokens=500)))
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("is_late", [False, True], ids=["waiting", "admitted"])
async def test_a_cancelled_request_leaves_its_place(is_late: bool) -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    permit = await admit(gate, root.allocate(Budget()))
    cancelled = asyncio.create_task(admit(gate, root.allocate(Budget())))
    last = asyncio.create_task(admit(gate, root.allocate(Budget())))
    await settle()
    if is_late:
        permit.end()
        cancelled.cancel()
    else:
        cancelled.cancel()
        await settle()
        permit.end()
    assert (await asyncio.wait_for(last, 5)).max_tokens == 900
    assert len(root.requests) == 1


async def test_what_is_reserved_for_others_is_not_spent() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    saver = root.allocate(Budget()).allocate(Budget(total_tokens=600))
    other = root.allocate(Budget())
    assert other.compute_amount_left(Limit.TOTAL_TOKENS) == 400
    permit = await admit(gate, other)
    assert permit.max_tokens == 300
    permit.end()
    assert (await admit(gate, saver)).max_tokens == 500


async def test_only_one_summary_passes_a_limit() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    child = root.allocate(Budget())
    child.charge(Usage(500, 450))
    refused = await gate.admit(child, make_plan(is_summary=True))
    assert refused == LimitState(Limit.TOTAL_TOKENS, 1_000, 950), "it is not the limit of the child"
    summary = await gate.admit(root, make_plan(is_summary=True))
    assert isinstance(summary, Permit) and summary.max_tokens == 16
    root.charge(Usage(100, 16))
    summary.end()
    assert isinstance(await gate.admit(root, make_plan(is_summary=True)), LimitState)


async def test_a_turn_is_counted_before_its_request() -> None:
    gate = RequestGate()
    meter = Meter(Budget(turns=2, total_tokens=10**6))
    await admit(gate, meter)
    assert meter.turns == 1


def test_a_child_gets_the_time_that_its_parent_has_left() -> None:
    parent = Meter(Budget(seconds=10))
    assert parent.allocate(Budget(), seconds=4).budget.seconds == 6
    assert parent.allocate(Budget(seconds=3), seconds=4).budget.seconds == 3


def test_a_new_limit_of_a_child_replaces_its_reservation() -> None:
    parent = Meter(Budget(total_tokens=100))
    child = parent.allocate(Budget(total_tokens=40))
    child.set_limits(Budget(total_tokens=60))
    assert parent.compute_amount_left(Limit.TOTAL_TOKENS) == 40
    child.charge(Usage(5, 5))
    assert parent.compute_amount_left(Limit.TOTAL_TOKENS) == 40
    child.release()
    assert parent.compute_amount_left(Limit.TOTAL_TOKENS) == 90


def test_the_smaller_of_two_limits_cuts_an_answer() -> None:
    here = LimitState(Limit.TOTAL_TOKENS, 1_000, 900)
    above = LimitState(Limit.USD, 1.0, 0.9)
    permit = Permit([], {}, lambda: None, 100, here)
    permit.cut_to(Admission(max_tokens=None, cut_by=above))
    permit.cut_to(Admission(max_tokens=200, cut_by=above))
    assert (permit.max_tokens, permit.cut_by) == (100, here)
    permit.cut_to(Admission(max_tokens=50, cut_by=above))
    assert (permit.max_tokens, permit.cut_by) == (50, above)
    unlimited = Permit([], {}, lambda: None, None, None)
    unlimited.cut_to(Admission(max_tokens=70, cut_by=above))
    assert (unlimited.max_tokens, unlimited.cut_by) == (70, above)


async def test_money_cuts_an_answer_by_the_price_of_a_token() -> None:
    prices = {Limit.USD: 0.5}
    cost = {Limit.USD: 2.0}
    permit = await RequestGate().admit(Meter(Budget(usd=12.0)), RequestPlan(cost, cost, prices, 16))
    assert isinstance(permit, Permit) and permit.max_tokens == 20


class LimitsElsewhere:
    """The port `ParentMeter`: a real meter and gate, as in the process of the session.

    Attributes:
        meter: the meter of the run that the other process executes.
    """

    def __init__(self, budget: Budget) -> None:
        self.meter = Meter(Budget(), Meter(budget))
        self.asked: list[bool] = []
        self.ended: list[int] = []
        self._gate = RequestGate()
        self._permits: dict[int, Permit] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.meter, name)

    async def admit(self, plan: RequestPlan, *, is_own: bool) -> Admission:
        self.asked.append(is_own)
        permit = await self._gate.admit(self.meter, plan, is_own=is_own)
        if isinstance(permit, LimitState):
            return Admission(refusal=permit)
        number = len(self.asked)
        self._permits[number] = permit
        return Admission(number, permit.max_tokens, permit.cut_by)

    def end_request(self, number: int) -> None:
        self.ended.append(number)
        self._permits.pop(number).end()


async def test_limits_in_another_process_count_a_turn_on_both_sides() -> None:
    above: Any = LimitsElsewhere(Budget(total_tokens=1_000))
    meter = Meter(Budget(turns=5), above)
    assert await RequestGate().reserve(meter, make_plan()) is None
    assert (meter.turns, above.meter.turns, above.asked) == (1, 1, [True])
    assert meter.permit and meter.permit.max_tokens == 900
    assert meter.permit.cut_by == LimitState(Limit.TOTAL_TOKENS, 1_000, 0)
    meter.end_request()
    assert above.ended == [1] and not above.meter.parent.requests
    assert await RequestGate().reserve(meter, make_plan(is_summary=True)) is None
    assert (meter.turns, above.meter.turns) == (1, 1), "a summary is no turn"


async def test_a_refusal_of_another_process_counts_no_turn_and_holds_nothing() -> None:
    above: Any = LimitsElsewhere(Budget(total_tokens=1_000))
    above.meter.charge(Usage(500, 450))
    meter = Meter(Budget(turns=5, output_tokens=10_000), above)
    refusal = await RequestGate().reserve(meter, make_plan())
    assert refusal == LimitState(Limit.TOTAL_TOKENS, 1_000, 950)
    assert (meter.turns, above.meter.turns, above.ended) == (0, 0, [])
    assert not meter.requests, "the limits of this process are free again"


async def test_a_request_below_the_run_of_another_process_counts_only_its_own_turn() -> None:
    above: Any = LimitsElsewhere(Budget(total_tokens=10_000))
    parent = Meter(Budget(), above)
    child = parent.allocate(Budget())
    assert await RequestGate().reserve(child, make_plan()) is None
    assert (child.turns, parent.turns, above.meter.turns, above.asked) == (1, 0, 0, [False])


async def test_a_request_that_is_cancelled_in_another_process_holds_nothing() -> None:
    above: Any = LimitsElsewhere(Budget(total_tokens=1_000))
    meter = Meter(Budget(output_tokens=10_000), above)
    first = Meter(Budget(), above)
    assert await RequestGate().reserve(first, make_plan()) is None
    waiting = asyncio.create_task(RequestGate().reserve(meter, make_plan()))
    await settle()
    assert meter.requests and not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and not meter.requests and meter.turns == 0
