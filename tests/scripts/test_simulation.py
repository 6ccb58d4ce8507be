"""The simulation of large sessions: its results where they can be calculated by hand."""

from __future__ import annotations

import pytest
from benchmarks.simulation.measure import read_costs
from benchmarks.simulation.session import Costs, Workload, simulate
from msgspec.structs import replace

FREE = Costs(
    session=0,
    child=0,
    request=0,
    home_child=0,
    home_request=0,
    worker_request=0,
    commit=0,
    commit_event=0,
)


def test_children_that_cost_nothing_wait_only_for_the_model() -> None:
    outcome = simulate(Workload(children=1_000, turns=3, at_once=1_000, answer=2.0), FREE)
    # The parent asks twice, and each child four times.
    assert outcome.wall == pytest.approx(6 * 2.0)
    assert outcome.most == 1_000


def test_children_beyond_the_limit_wait_for_others() -> None:
    outcome = simulate(Workload(children=30, turns=0, at_once=10, answer=1.0), FREE)
    assert outcome.wall == pytest.approx(2 + 3)
    assert outcome.most == 10


def test_one_process_works_on_one_request_at_a_time() -> None:
    load = Workload(children=100, turns=0, at_once=100, answer=1.0)
    outcome = simulate(load, replace(FREE, request=0.1))
    # Half of each request comes before the answer, half after it.
    assert outcome.wall == pytest.approx(2 + 100 * 0.1)
    assert outcome.busiest == "session's process"


def test_worker_processes_share_the_work() -> None:
    load = Workload(children=100, turns=0, at_once=100, answer=1.0, workers=4)
    outcome = simulate(load, replace(FREE, worker_request=0.1))
    assert outcome.wall == pytest.approx(2 + 25 * 0.1)
    assert outcome.worker == pytest.approx(2.5 / 4.5)
    assert outcome.busiest == "a worker process"


def test_the_rate_limit_of_the_provider_spreads_the_requests() -> None:
    load = Workload(children=100, turns=1, at_once=100, answer=1.0, rate=10.0)
    outcome = simulate(load, FREE)
    assert outcome.wall == pytest.approx(2 + 199 * 0.1 + 1)
    assert outcome.busiest == "rate limit of the provider"


def test_the_journal_commits_what_waits_as_one_group() -> None:
    load = Workload(children=100, turns=0, at_once=100, answer=1.0)
    outcome = simulate(load, replace(FREE, commit=0.5, commit_event=0.001))
    # The first answer is alone in its group; the others wait for it and make the second.
    assert outcome.wall == pytest.approx(2 + 1 + 2 * 0.5 + 100 * 4 * 0.001)


def test_the_measured_costs_give_a_million_children_a_limit_that_is_not_the_provider() -> None:
    costs = read_costs()
    load = Workload(children=20_000, turns=3, at_once=5_000, answer=5.0, spread=0.5, workers=8)
    first, second = (simulate(load, costs, seed=seed) for seed in (1, 1))
    assert first == second
    assert first.provider == 0.0
    assert 0 < first.home < 1
