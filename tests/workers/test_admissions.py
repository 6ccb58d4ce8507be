"""Requests of a worker process that wait for the limits of the session."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from mudroom import Budget, Usage
from mudroom._core.budgets import Limit
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.request_gate import RequestGate
from mudroom._engine.meters.request_plan import Permit, RequestPlan
from mudroom.testing.event_builders import run_started
from mudroom.workers.remote.assigned_run import AssignedRun
from mudroom.workers.remote.messages import RequestAdmission

AMOUNTS = {Limit.INPUT_TOKENS: 100.0, Limit.TOTAL_TOKENS: 100.0}
PLAN = RequestPlan(AMOUNTS, AMOUNTS, {Limit.TOTAL_TOKENS: 1.0}, 16)


@pytest.mark.parametrize("steps", range(6))
async def test_a_permit_that_comes_as_the_process_is_lost_counts_no_turn(steps: int) -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    other, meter = root.allocate(Budget()), root.allocate(Budget())
    permit = await gate.admit(other, PLAN)
    assert isinstance(permit, Permit)
    run = AssignedRun(run_started("1.1.1").brief, meter, {}, print)
    waiting = asyncio.create_task(run.admit(gate, RequestAdmission(1, "1.1.1", PLAN, is_own=True)))
    for _ in range(3):
        await asyncio.sleep(0)
    other.charge(Usage(100, 300))
    permit.end()
    for _ in range(steps):
        await asyncio.sleep(0)
    run.refund()
    with suppress(asyncio.CancelledError):
        await waiting
    assert (meter.turns, root.requests) == (0, [])


async def test_a_request_that_ends_as_it_arrives_holds_no_tokens() -> None:
    gate = RequestGate()
    root = Meter(Budget(total_tokens=1_000))
    meter = root.allocate(Budget())
    run = AssignedRun(run_started("1.1.1").brief, meter, {}, print)
    admitting = run.admit(gate, RequestAdmission(1, "1.1.1", PLAN, is_own=True))
    run.end_request(1)
    with suppress(asyncio.CancelledError):
        await admitting
    assert (meter.turns, root.requests) == (0, [])
