"""Figures in the documentation: the parts of its pages that measurements write.

A figure without a commit that others can check out is worth little. So measurements of changed
files are not written, and `tests/docs/test_figures.py` checks that each commit exists.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from .history import HISTORY, Entry

ROOT = HISTORY.parents[1]
PERFORMANCE = ROOT / "docs" / "performance.md"
RELIABILITY = ROOT / "docs" / "reliability.md"

BEGIN = "<!-- make figures writes from here -->"
END = "<!-- to here -->"

_WRITTEN = {str(path.relative_to(ROOT)) for path in (HISTORY, PERFORMANCE, RELIABILITY)}


def find_commit(root: Path = ROOT) -> str:
    """Return the commit that is checked out.

    Raises SystemExit if other files than those with figures differ from it: nobody could measure
    the same again.
    """
    changed = [line[3:] for line in _run_git(root, "status", "--porcelain").splitlines()]
    if others := sorted(set(changed) - _WRITTEN):
        raise SystemExit(
            f"figures belong to a commit, but files differ from it: {', '.join(others[:5])}. "
            "Commit or remove the changes, then measure again."
        )
    return _run_git(root, "rev-parse", "--short=8", "HEAD").strip()


def _run_git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"figures need the repository with its history: {error}") from error
    return done.stdout


def write_figures(page: Path, text: str) -> None:
    """Replace the part of a page between its two marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: the marks {BEGIN} and {END} are missing")
    page.write_text(f"{before}{BEGIN}\n{text.strip()}\n{END}{after}", encoding="utf-8")


def read_figures(page: Path) -> str:
    """Return the part of a page between its two marks."""
    return page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def format_performance(entry: Entry) -> str:
    """Return the figures of a run of the benchmarks for their page."""
    lines = [
        f"Measured on {_format_date(entry.date)} at commit {entry.commit}, load {entry.load:g}:",
        "",
        "| | mudroom | bare loop | ratio |",
        "|---|---|---|---|",
    ]
    for name, (measured, floor) in entry.figures.items():
        unit = f" {entry.units[name]}" if entry.units.get(name) else ""
        bare = f"{floor:,.4g}{unit}" if floor is not None else "–"
        ratio = f"{measured / floor:.2f}" if floor else "–"
        lines.append(f"| {name} | {measured:,.4g}{unit} | {bare} | {ratio} |")
    return "\n".join(lines)


def format_reliability(rows: Iterable[tuple[str, str]], commit: str) -> str:
    """Return the figures of the long fault tests for their page. `rows`: proofs and figures."""
    date = _format_date(datetime.now(UTC).date().isoformat())
    python = ".".join(platform.python_version_tuple()[:2])
    lines = [
        f"Measured on {date} at commit {commit}, on {os.cpu_count()} cores, with Python {python} "
        "and `MUDROOM_LONG=1`:",
        "",
        "| proof | figure |",
        "|---|---|",
        *(f"| {proof} | {figure} |" for proof, figure in rows),
    ]
    return "\n".join(lines)


def _format_date(date: str) -> str:
    day = datetime.fromisoformat(date)
    return f"{day.day} {day:%B %Y}"


if __name__ == "__main__":  # before hours of measuring
    print(f"measures commit {find_commit()}")
