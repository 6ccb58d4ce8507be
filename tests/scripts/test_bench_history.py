"""The history of the benchmarks keeps the figures of each commit."""

from __future__ import annotations

from pathlib import Path

from benchmarks.history import HISTORY, append_entry, make_entry, read_last_entry


def test_the_last_entry_tells_ratios_and_figures_without_a_floor(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert read_last_entry(path) is None
    append_entry(make_entry({"CPU": (9.0, 3.0)}, 0.0), path)
    append_entry(make_entry({"CPU": (0.361234, 0.2), "bytes": (2377, None)}, 1.23), path)
    last = read_last_entry(path)
    assert last is not None
    assert (last.load, last.figures["CPU"]) == (1.2, (0.3612, 0.2))
    assert last.get_ratio("CPU") == 0.3612 / 0.2
    assert last.get_ratio("bytes") == 2377
    assert last.get_ratio("new figure") is None


def test_the_history_in_the_repository_is_readable() -> None:
    last = read_last_entry()
    assert last is not None
    assert HISTORY.exists()
    assert last.commit
    assert last.figures
