"""Requests of a worker process that wait for the limits of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from msgspec.structs import replace

from mudroom import Budget, Usage
from mudroom._adapters.workers.remote.assigned_run import AssignedRun
from mudroom._adapters.workers.remote.messages import (
    CallReply,
    EndAdmission,
    ParentMeterState,
    RequestAdmission,
)
from mudroom._adapters.workers.remote.remote_services import RemoteParentMeter, SessionLink
from mudroom._core.budgets import Limit
from mudroom._engine.meters.account import Admission, Permit, RequestPlan
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.request_gate import RequestGate
from mudroom._peers import encode
from mudroom._session.briefs import SessionMeter
from mudroom.testing.clock import LoopClock
from mudroom.testing.event_builders import run_started

AMOUNTS = {Limit.INPUT_TOKENS: 100.0, Limit.TOTAL_TOKENS: 100.0}
PLAN = RequestPlan(AMOUNTS, AMOUNTS, {Limit.TOTAL_TOKENS: 1.0}, 16)
SUMMARY = replace(PLAN, is_summary=True)


def make_run(meter: Meter) -> AssignedRun:
    return AssignedRun(run_started("1.1.1").brief, meter, {}, print)


@pytest.mark.parametrize("steps", range(6))
async def test_a_permit_that_comes_as_the_process_is_lost_counts_no_turn(steps: int) -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    other, meter = root.allocate(Budget()), root.allocate(Budget())
    permit = await gate.admit(other, PLAN)
    assert isinstance(permit, Permit)
    run = make_run(meter)
    waiting = asyncio.create_task(run.admit(gate, RequestAdmission(1, "1.1.1", PLAN, is_own=True)))
    for _ in range(3):
        await asyncio.sleep(0)
    other.charge(Usage(100, 300))
    permit.end()
    other.release()
    for _ in range(steps):
        await asyncio.sleep(0)
    run.refund()
    with suppress(asyncio.CancelledError):
        await waiting
    assert (meter.turns, root.accounts[Limit.TOTAL_TOKENS].is_busy) == (0, False)


async def test_a_request_that_ends_as_it_arrives_holds_no_tokens() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    meter = root.allocate(Budget())
    run = make_run(meter)
    admitting = run.admit(gate, RequestAdmission(1, "1.1.1", PLAN, is_own=True))
    run.end_request(1)
    with suppress(asyncio.CancelledError):
        await admitting
    assert (meter.turns, root.accounts[Limit.TOTAL_TOKENS].is_busy) == (0, False)


async def test_a_request_that_is_cancelled_as_its_permit_is_on_its_way_counts_no_turn() -> None:
    root = Meter(Budget(total_tokens=1_000))
    meter = root.allocate(Budget())
    run = make_run(meter)
    await run.admit(RequestGate(), RequestAdmission(1, "1.1.1", PLAN, is_own=True))
    assert meter.turns == 1
    run.end_request(1, is_unsent=True)
    assert (meter.turns, root.accounts[Limit.TOTAL_TOKENS].is_busy) == (0, False)
    run.refund()
    assert meter.turns == 0


async def test_a_request_that_was_sent_keeps_its_turn() -> None:
    meter = Meter(Budget(total_tokens=1_000)).allocate(Budget())
    run = make_run(meter)
    await run.admit(RequestGate(), RequestAdmission(1, "1.1.1", PLAN, is_own=True))
    run.end_request(1)
    assert meter.turns == 1


def end_unsent(run: AssignedRun) -> None:
    run.end_request(1, is_unsent=True)


@pytest.mark.parametrize("end", [end_unsent, AssignedRun.refund])
async def test_a_summary_that_was_not_sent_leaves_it_to_another_run(
    end: Callable[[AssignedRun], None],
) -> None:
    gate = RequestGate()
    session = SessionMeter(Budget(turns=1), LoopClock())
    runs = [make_run(Meter(Budget(), session)) for _ in range(2)]
    session.add_child_turns(1)
    admitted = await runs[0].admit(gate, RequestAdmission(1, "1.1.1", SUMMARY, is_own=True))
    assert admitted.refusal is None
    end(runs[0])
    admitted = await runs[1].admit(gate, RequestAdmission(2, "1.1.1", SUMMARY, is_own=True))
    assert admitted.refusal is None


class KeepingChannel:
    """Keeps what a worker process sends."""

    def __init__(self) -> None:
        self.sent: list[msgspec.Struct] = []

    def send(self, message: msgspec.Struct) -> None:
        self.sent.append(message)

    def check_lease(self) -> None:
        pass


@pytest.mark.parametrize("has_reply", [False, True])
async def test_a_worker_process_says_that_a_cancelled_request_was_not_sent(has_reply: bool) -> None:
    channel = KeepingChannel()
    link = SessionLink(channel.send, channel.check_lease)
    meter = RemoteParentMeter(link, ParentMeterState("1.1.1"))
    waiting = asyncio.create_task(meter.admit(PLAN, is_own=True))
    await asyncio.sleep(0)
    if has_reply:
        link.handle_reply(CallReply(1, encode(Admission())))
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    meter.end_request(2)
    assert channel.sent[1:] == [
        EndAdmission(1, "1.1.1", is_unsent=True),
        EndAdmission(2, "1.1.1", is_unsent=False),
    ]
