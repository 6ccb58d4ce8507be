"""The gate for model requests: parallel runs wait where together they could pass a limit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from mudroom import Budget, Usage
from mudroom._core.budgets import Limit, LimitState
from mudroom._engine.meters.account import LONGEST_ANSWER, Admission, Permit, RequestPlan
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.pool import SHORTEST_SUMMARY
from mudroom._engine.meters.request_gate import SHARES, RequestGate
from mudroom._session.briefs import SessionMeter
from mudroom.testing.clock import LoopClock, run_virtual

PRICES = {Limit.OUTPUT_TOKENS: 1.0, Limit.TOTAL_TOKENS: 1.0}


def make_plan(
    tokens: int = 100, *, is_summary: bool = False, is_child: bool = False
) -> RequestPlan:
    amounts = {Limit.INPUT_TOKENS: tokens, Limit.TOTAL_TOKENS: tokens}
    shortest = SHORTEST_SUMMARY if is_summary else 16
    return RequestPlan(
        amounts, amounts, PRICES, shortest, is_summary=is_summary, is_child=is_child, size=tokens
    )


async def admit(gate: RequestGate, meter: Meter, tokens: int = 100) -> Permit:
    permit = await gate.admit(meter, make_plan(tokens, is_child=isinstance(meter.parent, Meter)))
    assert isinstance(permit, Permit)
    return permit


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def answer(meter: Meter, permit: Permit, sent: int = 100, written: int = 100) -> None:
    """End a request with the counts of the provider."""
    usage = Usage(sent, written)
    meter.charge(usage)
    meter.learn(usage, None)
    permit.end()


async def test_an_answer_is_cut_to_what_is_left_beside_the_last_turn() -> None:
    meter = Meter(Budget(total_tokens=1_000))
    permit = await admit(RequestGate(), meter)
    assert permit.max_tokens == 1_000 - 100 - 250, "at most a quarter is held for the last turn"
    assert permit.cut_by == LimitState(Limit.TOTAL_TOKENS, 1_000, 0)


async def test_requests_run_side_by_side_where_all_fit() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=4 * LONGEST_ANSWER))
    permits = [await admit(gate, root.allocate(Budget())) for _ in range(12)]
    assert {permit.max_tokens for permit in permits} == {4 * LONGEST_ANSWER // SHARES}


async def test_a_distant_limit_cuts_no_answer() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=SHARES * LONGEST_ANSWER))
    permits = [await admit(gate, root.allocate(Budget())) for _ in range(3)]
    assert [permit.max_tokens for permit in permits] == [LONGEST_ANSWER] * 3
    assert all(permit.cut_by is None for permit in permits)


async def test_a_child_does_not_begin_while_what_is_left_covers_only_the_first() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=3_000))
    first, second = root.allocate(Budget()), root.allocate(Budget())
    permit = await admit(gate, first)
    waiting = asyncio.create_task(admit(gate, second))
    await settle()
    answer(first, permit, sent=500, written=500)
    await settle()
    assert not waiting.done(), "the first has begun, and may need what is left"
    first.release()
    assert (await waiting).max_tokens


async def test_a_child_that_waits_for_others_does_not_hold_them_back() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=3_000))
    first, second = root.allocate(Budget()), root.allocate(Budget())
    answer(first, await admit(gate, first), sent=500, written=500)
    waiting = asyncio.create_task(admit(gate, second))
    await settle()
    assert not waiting.done()
    with first.lend_share():
        await settle()
        assert waiting.done()


async def test_a_child_that_cannot_begin_is_refused_when_no_other_works() -> None:
    gate = RequestGate()
    root = Meter(Budget(output_tokens=1_000))
    first, second = root.allocate(Budget()), root.allocate(Budget())
    permit = await admit(gate, first)
    waiting = asyncio.create_task(gate.admit(second, make_plan(is_child=True)))
    await settle()
    answer(first, permit, written=900)
    first.release()
    assert await waiting == LimitState(Limit.OUTPUT_TOKENS, 1_000, 900)
    assert second.turns == 0


async def test_the_oldest_run_goes_first() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=6_000))
    runs = [root.allocate(Budget()) for _ in range(3)]
    for run in runs:  # all have begun
        run.turns = 1
    permit = await admit(gate, runs[2], 4_000)
    order: list[int] = []

    async def take(number: int) -> None:
        taken = await admit(gate, runs[number], 1_500)
        order.append(number)
        await settle()
        answer(runs[number], taken, sent=10, written=10)
        runs[number].release()

    younger = asyncio.create_task(take(1))
    await settle()
    older = asyncio.create_task(take(0))
    await settle()
    assert order == []
    answer(runs[2], permit, sent=10, written=10)
    await asyncio.gather(younger, older)
    assert order[0] == 0


def test_a_summary_run_does_not_wait_for_runs_that_wait_for_it() -> None:
    async def work() -> None:
        gate = RequestGate()
        root = Meter(Budget(total_tokens=4_000))
        older, younger = root.allocate(Budget()), root.allocate(Budget())
        for run in (older, younger):
            answer(run, await admit(gate, run), sent=300)
        part = Meter(Budget(turns=1), older)
        part.member.take_place_of(older.member)
        with older.lend_share():
            summary = asyncio.create_task(admit(gate, part))
            following = asyncio.create_task(admit(gate, younger))
            await settle()
            assert summary.done(), "the younger run has had a turn, and still goes after the older"
            answer(part, await summary, sent=300)
            part.release()
            answer(younger, await following)

    run_virtual(work())  # the younger begins when the older has asked for nothing for 15 s


async def test_a_run_that_cannot_go_on_has_enough_left_for_its_summary() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=4_000))
    runs = [root.allocate(Budget()) for _ in range(2)]
    begun: list[Meter] = []
    for run in runs:
        run.turns = 1
        answer(run, await admit(gate, run, 200), sent=200, written=200)
        begun.append(run)
    refused: LimitState | Permit = await gate.admit(runs[0], make_plan(400))
    while isinstance(refused, Permit):
        answer(runs[0], refused, sent=400, written=refused.max_tokens or 0)
        refused = await gate.admit(runs[0], make_plan(400))
    assert refused.spent < 4_000
    for run in begun:
        summary = await gate.admit(run, make_plan(400, is_summary=True))
        assert isinstance(summary, Permit) and (summary.max_tokens or 0) >= 16
        answer(run, summary, sent=400, written=200)
        run.release()


async def test_a_permit_that_comes_as_its_request_is_cancelled_counts_no_turn() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=3_000))
    first, second = root.allocate(Budget()), root.allocate(Budget())
    permit = await admit(gate, first)
    waiting = asyncio.create_task(admit(gate, second))
    await settle()
    answer(first, permit)
    first.release()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
    assert (second.turns, root.accounts[Limit.TOTAL_TOKENS].requested) == (0, 0)


async def test_a_turn_that_is_taken_back_is_free_for_the_next_request() -> None:
    gate = RequestGate()
    session = SessionMeter(Budget(turns=2, total_tokens=1_000), LoopClock())
    first, second = Meter(Budget(), session), Meter(Budget(), session)
    permit = await admit(gate, first)
    waiting = asyncio.create_task(admit(gate, second))
    await settle()
    permit.withdraw()
    first.release()
    assert (await waiting).max_tokens
    assert (first.turns, second.turns, session.turns) == (0, 1, 1)


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
    runs = [root.allocate(Budget()) for _ in range(3)]
    permit = await admit(gate, runs[0])
    cancelled = asyncio.create_task(admit(gate, runs[1]))
    last = asyncio.create_task(admit(gate, runs[2]))
    await settle()

    def end_first() -> None:
        permit.end()
        runs[0].release()

    if is_late:
        end_first()
        cancelled.cancel()
    else:
        cancelled.cancel()
        await settle()
        end_first()
    with contextlib.suppress(asyncio.CancelledError):
        await cancelled
    runs[1].release()
    assert (await asyncio.wait_for(last, 5)).max_tokens


async def test_what_is_reserved_for_others_is_not_spent() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    saver = root.allocate(Budget()).allocate(Budget(total_tokens=600))
    other = root.allocate(Budget())
    assert other.compute_amount_left(Limit.TOTAL_TOKENS) == 400
    permit = await admit(gate, other)
    assert permit.max_tokens == 400 - 100 - 250
    permit.end()
    assert (await admit(gate, saver)).max_tokens == 600 - 100 - 150


async def test_only_one_summary_passes_a_limit() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    child = root.allocate(Budget())
    child.charge(Usage(500, 450))
    refused = await gate.admit(child, make_plan(is_summary=True))
    assert refused == LimitState(Limit.TOTAL_TOKENS, 1_000, 950), "it is not the limit of the child"
    summary = await gate.admit(root, make_plan(is_summary=True))
    assert isinstance(summary, Permit) and summary.max_tokens == SHORTEST_SUMMARY
    answer(root, summary, written=256)
    assert isinstance(await gate.admit(root, make_plan(is_summary=True)), LimitState)


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
    permit = Permit([], lambda: None, 100, here)
    permit.cut_to(Admission(max_tokens=None, cut_by=above))
    permit.cut_to(Admission(max_tokens=200, cut_by=above))
    assert (permit.max_tokens, permit.cut_by) == (100, here)
    permit.cut_to(Admission(max_tokens=50, cut_by=above))
    assert (permit.max_tokens, permit.cut_by) == (50, above)
    unlimited = Permit([], lambda: None, None, None)
    unlimited.cut_to(Admission(max_tokens=70, cut_by=above))
    assert (unlimited.max_tokens, unlimited.cut_by) == (70, above)


async def test_money_cuts_an_answer_by_the_price_of_a_token() -> None:
    plan = RequestPlan({Limit.USD: 2.0}, {Limit.USD: 2.0}, {Limit.USD: 0.5}, 16)
    permit = await RequestGate().admit(Meter(Budget(usd=32.0)), plan)
    assert isinstance(permit, Permit) and permit.max_tokens == (32 - 8 - 2) / 0.5


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
    assert meter.permit and meter.permit.max_tokens == 650
    assert meter.permit.cut_by == LimitState(Limit.TOTAL_TOKENS, 1_000, 0)
    meter.end_request()
    assert above.ended == [1] and not above.meter.parent.accounts[Limit.TOTAL_TOKENS].is_busy
    assert await RequestGate().reserve(meter, make_plan(is_summary=True)) is None
    assert (meter.turns, above.meter.turns) == (1, 1), "a summary is no turn"


async def test_a_refusal_of_another_process_counts_no_turn_and_holds_nothing() -> None:
    above: Any = LimitsElsewhere(Budget(total_tokens=1_000))
    above.meter.charge(Usage(500, 450))
    meter = Meter(Budget(turns=5, output_tokens=10_000), above)
    refusal = await RequestGate().reserve(meter, make_plan())
    assert refusal == LimitState(Limit.TOTAL_TOKENS, 1_000, 950)
    assert (meter.turns, above.meter.turns, above.ended) == (0, 0, [])
    assert not meter.accounts[Limit.OUTPUT_TOKENS].is_busy, (
        "the limits of this process are free again"
    )


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
    account = meter.accounts[Limit.OUTPUT_TOKENS]
    assert account.is_busy and not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and not account.is_busy and meter.turns == 0
