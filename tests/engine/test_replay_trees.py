"""Replay of random trees: each record replays equal; a damaged one ends with its difference."""

from __future__ import annotations

import asyncio
import random

import pytest

from mudroom._core.events import StoredEvent
from mudroom._replay import ReplayDiverged, replay

from ..long_form import count_examples
from ..replay_trees import LostEndTree, Tree, WideTree, damage

SEEDS = range(count_examples(34, 2_000))

RESUMED_SEEDS = (1564, 1614)
"""Trees with a run that the next process ended before it went on with it."""

PAUSED_SEEDS = (43, 287, 357, 384, 532, *range(count_examples(11, 350)))

WIDE_SEEDS = (
    *(106, 160, 265, 280, 306, 344, 380, 402, 535, 544, 629, 731, 865, 1174),
    *(1587, 1640, 2051, 2501, 2555, 3021, 3233, 3476, 5708, 7557, 7623, 9332, 9557, 34_521),
    35_317,
)
"""Trees that once differed or never ended, each for another reason.

The long form has the first 1,000, too.
"""

LOST_END_SEEDS = (
    *(30, 83, 96, 165, 352, 705, 1193, 1531, 1630, 2139, 2191),
    *(30_689, 31_888, 32_219, 32_694),
    *range(count_examples(4, 300)),
)

DAMAGES = 4
"""Damaged forms of each record."""


async def replay_all(records: list[list[StoredEvent]]) -> list[ReplayDiverged | None]:
    """Replay records one after another; return the first difference of each."""
    differences: list[ReplayDiverged | None] = []
    for events in records:
        try:
            assert await replay(events) == events
            differences.append(None)
        except ReplayDiverged as difference:
            differences.append(difference)
    return differences


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("is_resumed", [False, True], ids=["whole", "resumed"])
def test_a_random_tree_replays(is_resumed: bool) -> None:
    for seed in (*SEEDS, *RESUMED_SEEDS) if is_resumed else SEEDS:
        events = Tree(seed, is_resumed).record()
        assert asyncio.run(replay(events)) == events, f"seed {seed}"


@pytest.mark.timeout(1_800)
def test_a_tree_that_is_paused_again_and_again_replays() -> None:
    trees = [Tree(seed) for seed in PAUSED_SEEDS]
    for tree in trees:
        events = tree.record_paused()
        assert asyncio.run(replay(events)) == events, f"seed {tree.seed}"


@pytest.mark.timeout(3_600)
def test_a_tree_of_several_processes_replays() -> None:
    """Each is killed or paused, compacts, and starts commands; see WideTree."""
    for seed in {*WIDE_SEEDS, *range(count_examples(0, 1_000))}:
        events = WideTree(seed).record()
        assert asyncio.run(replay(events)) == events, f"seed {seed}"


@pytest.mark.timeout(3_600)
def test_a_tree_with_ends_that_were_lost_replays() -> None:
    """A process is killed before the end of a run is stored, and the next one stops it."""
    for seed in LOST_END_SEEDS:
        events = LostEndTree(seed).record()
        assert asyncio.run(replay(events)) == events, f"seed {seed}"


@pytest.mark.timeout(1_800)
def test_a_damaged_record_ends_and_names_its_first_difference(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        events = Tree(seed, is_resumed=seed % 3 == 0).record()
        damaged = [damage(events, draw) for _ in range(DAMAGES)]
        for difference in asyncio.run(replay_all(damaged)):
            assert difference is None or "record" in str(difference), f"seed {seed}"
        assert not caplog.records, f"seed {seed}: a task failed unseen"
