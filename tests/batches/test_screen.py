"""The screen of a batch: everything is visible at each width, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from mudroom._cli.batches.status import BatchStatus
from mudroom._cli.output.batch_progress import BatchScreen

STATUS = BatchStatus(
    session="s",
    output="out.jsonl",
    total=300,
    done=56,
    running=8,
    reasons={"GOAL": 52, "ERROR": 4},
    parallel=8,
    state="running",
    waits_for="parallel",
    requests=52,
    tokens=34_103,
    usd=0.11,
    usd_limit=None,
    lines_per_second=6.2,
    requests_per_second=5.8,
    seconds_left=39.0,
    seconds=9.0,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_all_numbers_are_visible_at_each_width(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("CI", raising=False)
    screen = BatchScreen(quiet=False, plain=False)
    screen.show(STATUS)
    rows = terminal.getvalue().splitlines()
    assert max(map(len, rows)) < columns
    text = " ".join(rows)
    for part in ("56 of 300 done", "4 failed", "8 running", "39 s left", "--parallel 8", "░"):
        assert part in text
    screen.clear()
    assert terminal.getvalue().endswith(f"\r\x1b[{len(rows)}A\x1b[J")
