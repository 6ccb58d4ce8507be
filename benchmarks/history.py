"""History of the benchmarks: medians per commit, so that a slow-down is seen.

`history.jsonl` has one line per entry: date, commit, load of the machine, and for each figure what
was measured and what the loop without a harness took.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

HISTORY = Path(__file__).with_name("history.jsonl")


class Entry(Struct, frozen=True):
    """Figures of one commit. `figures`: name -> (measured, without a harness or None)."""

    date: str
    commit: str
    load: float
    figures: dict[str, tuple[float, float | None]]

    def get_ratio(self, name: str) -> float | None:
        """Return a figure relative to the loop; as measured if the loop has none."""
        measured, floor = self.figures.get(name, (None, None))
        return measured / floor if measured is not None and floor else measured


def make_entry(figures: dict[str, tuple[float, float | None]], load: float) -> Entry:
    """Return an entry for the commit that is checked out; "+" marks files that differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=+"],
        capture_output=True,
        text=True,
        cwd=HISTORY.parent,
        check=False,
    )
    date = datetime.now(UTC).date().isoformat()
    rounded = {
        name: (_round(measured), None if floor is None else _round(floor))
        for name, (measured, floor) in figures.items()
    }
    return Entry(date, described.stdout.strip() or "unknown", round(load, 1), rounded)


def append_entry(entry: Entry, path: Path = HISTORY) -> None:
    """Append an entry to the history."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(entry) + b"\n")


def read_last_entry(path: Path = HISTORY) -> Entry | None:
    """Return the last entry; None without a history."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return msgspec.json.decode(lines[-1], type=Entry) if lines else None


def _round(figure: float) -> float:
    return float(f"{figure:.4g}")
