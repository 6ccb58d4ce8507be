"""History of the benchmarks: medians per commit, so that a slow-down is seen.

`history.jsonl` has one line per entry: date, commit, load of the machine, and for each figure what
was measured, what the loop without a harness took, and the unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from .rows import Row

HISTORY = Path(__file__).with_name("history.jsonl")


class Entry(Struct, frozen=True):
    """Figures of one commit.

    Arguments:
        figures: name -> (measured, without a harness or None).
        units: name -> unit; empty in entries of older versions.
    """

    date: str
    commit: str
    load: float
    figures: dict[str, tuple[float, float | None]]
    units: dict[str, str] = {}

    def get_ratio(self, name: str) -> float | None:
        """Return a figure relative to the loop; as measured if the loop has none."""
        measured, floor = self.figures.get(name, (None, None))
        return measured / floor if measured is not None and floor else measured


def make_entry(rows: Iterable[Row], load: float, commit: str) -> Entry:
    """Return an entry for a commit."""
    date = datetime.now(UTC).date().isoformat()
    figures: dict[str, tuple[float, float | None]] = {}
    units: dict[str, str] = {}
    for row in rows:
        floor = None if row.floor is None else _round(row.floor)
        figures[row.name] = _round(row.measured), floor
        units[row.name] = row.unit
    return Entry(date, commit, round(load, 1), figures, units)


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
