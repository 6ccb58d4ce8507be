"""The history of the benchmarks keeps the figures of each commit."""

from __future__ import annotations

from pathlib import Path

from benchmarks.history import HISTORY, append_entry, make_entry, read_last_entry
from benchmarks.rows import Row


def test_the_last_entry_tells_ratios_and_figures_without_a_floor(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert read_last_entry(path) is None
    append_entry(make_entry([Row("CPU", "ms", 9.0, 10.0, floor=3.0)], 0.0, "c0ffee11"), path)
    rows = [Row("CPU", "ms", 0.361234, 1.0, floor=0.2), Row("bytes", "", 2377, 2400)]
    append_entry(make_entry(rows, 1.23, "c0ffee12"), path)
    last = read_last_entry(path)
    assert last is not None
    assert (last.load, last.figures["CPU"]) == (1.2, (0.3612, 0.2))
    assert (last.commit, last.units) == ("c0ffee12", {"CPU": "ms", "bytes": ""})
    assert last.get_ratio("CPU") == 0.3612 / 0.2
    assert last.get_ratio("bytes") == 2377
    assert last.get_ratio("new figure") is None


def test_the_history_in_the_repository_is_readable() -> None:
    last = read_last_entry()
    assert last is not None
    assert HISTORY.exists()
    assert last.commit
    assert last.figures
