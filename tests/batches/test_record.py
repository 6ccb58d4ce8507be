"""The record of a batch: which result of a line counts, whatever happened to its runs."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.long_form import count_examples

from mudroom import Reason
from mudroom._cli.batches.batch import RecordReader, TaskKey
from mudroom._cli.batches.results import ResultFile, ResultFormat
from mudroom.events import StoredEvent
from mudroom.testing.event_builders import run_finished, run_started

ENDS = (Reason.GOAL, Reason.ERROR, Reason.TIMEOUT, Reason.CANCELLED)
Run = tuple[str, Reason | None]
"""Id of a run, and how it ended; None: it has not."""


def make_history(chance: random.Random) -> tuple[dict[int, list[Run]], list[StoredEvent]]:
    """Return the runs of some lines, and their events in a possible order."""
    lines: dict[int, list[Run]] = {line: [] for line in range(chance.randrange(1, 6))}
    order = [line for line in lines for _ in range(chance.randrange(4))]
    chance.shuffle(order)
    events: list[StoredEvent] = []
    for number, line in enumerate(order, 1):
        is_last = line not in order[number:]
        reason = None if is_last and chance.random() < 0.3 else chance.choice(ENDS)
        key = TaskKey(line, len(lines[line]), f"id-{line}").encode()
        start = run_started(str(number))
        events.append(replace(start, brief=replace(start.brief, key=key)))
        if reason is not None:
            events.append(run_finished(str(number), reason))
        lines[line].append((str(number), reason))
    return lines, events


def find_result(runs: list[Run], again: set[Reason]) -> Run | None:
    """Return the run whose result counts."""
    counts: Run | None = None
    for run, reason in runs:
        if reason is None or reason in again:
            counts = None
        elif reason is not Reason.CANCELLED:
            counts = (run, reason)
    return counts


@pytest.mark.parametrize("kind", ["native", "openai"])
@pytest.mark.parametrize("again", [(), ("ERROR",), ("ERROR", "TIMEOUT")])
def test_each_line_has_the_result_that_counts_and_no_other(
    again: tuple[str, ...], kind: ResultFormat, tmp_path: Path
) -> None:
    retried = {Reason(each) for each in again}
    for seed in range(count_examples(40, 2_000)):
        lines, events = make_history(random.Random(seed))
        removed = min(lines) if seed % 3 == 0 else None  # a line that is no longer in the input
        wanted = set(lines) - {removed}
        path = tmp_path / f"{seed}.jsonl"
        with ResultFile(path) as results:
            reader = RecordReader(wanted, retried, results, kind)
            for event in events:
                reader.apply(event)
            record = reader.record
            results.publish(record.superseded)
        expected = {line: find_result(lines[line], retried) for line in wanted}
        finished = {line: result for line, result in expected.items() if result}
        found = [describe(json.loads(text)) for text in path.read_text().splitlines()]
        assert len(found) == len(finished), seed
        assert dict(found) == {f"id-{line}": run for line, (run, _) in finished.items()}, seed
        assert record.finished == {line: reason for line, (_, reason) in finished.items()}
        reasons = Counter(reason.value for _, reason in finished.values() if reason)
        assert +record.reasons == reasons
        is_open = {run for line in wanted for run, reason in lines[line] if reason is None}
        assert set(record.open_runs) == is_open
        for line in wanted - set(finished):
            runs = lines[line]
            if runs and runs[-1][1] is not None:
                assert record.attempts[line] == len(runs), "the next run has a key of its own"


def describe(line: dict[str, Any]) -> tuple[str, str]:
    return line["custom_id"], line.get("run") or line["id"].removeprefix("batch_req_")


def test_lines_that_were_replaced_leave_the_file_and_others_keep_their_order(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.jsonl"
    lines = [f'{{"custom_id":"{name}","n":{n}}}\n'.encode() for n, name in enumerate("babcab")]
    with ResultFile(path) as results:
        for line in lines:
            results.add(line)
        results.publish(Counter(b=2, c=1))
        assert path.read_bytes() == b"".join([lines[1], lines[4], lines[5]])
        results.add(lines[0])
    assert path.read_bytes() == b"".join([lines[1], lines[4], lines[5], lines[0]])
    assert list(tmp_path.iterdir()) == [path]
