"""Shared limits: whatever the tree, prices and limit, everything that began leaves words."""

from __future__ import annotations

import random

import pytest
from benchmarks.limits import Child, run_children, run_map

from mudroom import Budget, Reason
from mudroom.testing.clock import run_virtual

from ..long_form import count_examples

SEEDS = range(count_examples(12, 300))

INPUT, OUTPUT = 3e-6, 15e-6
"""Dollars for a token of the model that the fan-outs name."""


def draw_fan_out(draw: random.Random) -> tuple[Child, int]:
    child = Child(draw.randint(1, 8), draw.choice((600, 3_000, 12_000)), draw.randint(20, 1_500))
    return child, draw.randint(1, 24)


def compute_price(child: Child) -> float:
    return child.requests * (child.sent * INPUT + child.written * OUTPUT)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_began_leaves_words_and_the_parent_answers(seed: int) -> None:
    draw = random.Random(seed)
    child, count = draw_fan_out(draw)
    needed = count * compute_price(child) + 0.1
    limit = needed * draw.choice((0.3, 0.6, 0.9, 2.0))
    by_tokens = draw.random() < 0.4
    tokens = int(limit / needed * (count * child.requests * (child.sent + child.written) + 20_000))
    budget = Budget(total_tokens=tokens) if by_tokens else Budget(usd=limit)
    outcome = run_virtual(run_children(child, count, budget))
    assert outcome.answer and outcome.answer.text, "the parent has no words"
    assert len(outcome.reports) == count, "a child has no end"
    assert not outcome.wordless
    for report in outcome.reports.values():
        assert report.turns or report.error.startswith("not started: "), report
    spent = outcome.answer.usage.total_tokens if by_tokens else outcome.usd
    answer = child.sent + child.written if by_tokens else compute_price(child) / child.requests
    # No request is small enough to be sent by mistake; the first ones are larger than they look.
    first = count * (child.sent if by_tokens else child.sent * INPUT)
    assert spent <= (tokens if by_tokens else limit) + answer + first
    assert outcome.begun, "one child always works"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_distant_limit_costs_little_time(seed: int) -> None:
    draw = random.Random(1_000 + seed)
    child, count = draw_fan_out(draw)
    limit = 10 * (count * compute_price(child) + 0.05)
    free = run_virtual(run_map(child, count, Budget()))
    limited = run_virtual(run_map(child, count, Budget(usd=limit)))
    assert {report.reason for report in limited.reports.values()} == {Reason.GOAL}
    # The first wave begins before anything is known: it may take one answer more.
    assert limited.seconds <= 1.3 * free.seconds + 0.5
