"""Merges of isolated workspaces, killed at any point: whole files, each merged once, none lost."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest
from tests.reliability.test_crash import CrashProgram, Figure, Kill, KilledSession

from mudroom._core.events import RunStarted, TurnFinished, WorkMerged
from mudroom.replay import replay
from mudroom.testing.invariants import find_violations

LONG = bool(os.environ.get("MUDROOM_LONG"))
LINES = "".join(f"line {name}\n\n\n\n\n" for name in "abc")


def read_files(folder: Path) -> dict[str, str]:
    """Return the texts of the files of a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def start_session(folder: Path, program: CrashProgram) -> KilledSession:
    session = KilledSession(folder, program)
    (session.work / "lines.txt").write_text(LINES)
    return session


def check(session: KilledSession) -> None:
    """Check files and record at the end."""
    assert read_files(session.work) == {
        "input.txt": "input\n",
        "lines.txt": LINES.replace("line", "by"),
        **{f"new/{name}.txt": f"new {name}\n" for name in "abc"},
    }
    events = session.events()
    assert not find_violations(events)
    merged = Counter(event.child for event in events if isinstance(event, WorkMerged))
    assert merged == Counter(("1.1.1", "1.1.2", "1.1.3"))
    assert {event.state for event in events if isinstance(event, WorkMerged)} == {"merged"}
    started = Counter(event.run for event in events if isinstance(event, RunStarted))
    assert set(started.values()) == {1}
    answers = Counter(
        (event.run, event.turn) for event in events if isinstance(event, TurnFinished)
    )
    assert set(answers.values()) == {1}
    assert asyncio.run(replay(events)) == events, "the record does not replay"
    runs = next((session.home / "isolated").iterdir()) / "runs"
    assert list(runs.iterdir()) == [], "a folder of an ended run is left"


@pytest.mark.timeout(3_000)
def test_s13_killed_at_any_point_the_work_of_isolated_children_is_merged_once(
    tmp_path: Path, figure: Figure
) -> None:
    program = CrashProgram({"CRASH_PROMPT": "ISOLATED"})
    try:
        undisturbed = start_session(tmp_path / "undisturbed", program)
        points, report = undisturbed.run()
        assert report and report.text == "all three are merged"
        check(undisturbed)
        kills = range(1, points + 1, 1 if LONG else 6)
        for point in kills:
            session = start_session(tmp_path / str(point), program)
            session.run(Kill(point))
            _, report = session.run()
            assert report and report.text == "all three are merged", f"killed at point {point}"
            assert set(report.files_changed) == {
                "lines.txt",
                *(f"new/{name}.txt" for name in "abc"),
            }
            check(session)
    finally:
        program.close()
    figure("killed around every append and rename of merges", f"{len(kills)} points, merged once")
