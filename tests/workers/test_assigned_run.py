"""What the session's process keeps of a run in a worker process."""

from __future__ import annotations

import msgspec

from mudroom import Agent, Budget
from mudroom._core.budgets import Grant
from mudroom._core.events import RunStarted
from mudroom._core.runs import Brief
from mudroom._engine.meters.meter import Meter
from mudroom.workers.remote.assigned_run import AssignedRun


def test_a_recorded_start_shares_the_brief_of_the_session() -> None:
    agent = Agent(name="a", description="It reads.", instructions="Read. " * 200)
    brief = Brief(
        run_id="1", agent=agent, prompt="Go.", tools=("read",), model="m", budget=Budget()
    )
    crossed = msgspec.msgpack.decode(msgspec.msgpack.encode(brief), type=Brief)
    other = msgspec.structs.replace(crossed, prompt="Go on.")
    grant = Grant("1", Budget())
    run = AssignedRun(brief, grant, Meter(Budget()), {}, print)
    run.add([RunStarted(at=1.0, run="1", brief=crossed), RunStarted(at=2.0, run="1", brief=other)])
    first, second = run.recorded["1"]
    assert isinstance(first, RunStarted)
    assert isinstance(second, RunStarted)
    assert first.brief is brief
    assert (first.at, second.brief) == (1.0, other)
