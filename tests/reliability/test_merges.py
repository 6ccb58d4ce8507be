"""Merges of isolated workspaces, killed at any point: whole files, each merged once, none lost."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.reliability.test_crash import CrashProgram, Figure, Kill, KilledSession, list_stops

from mudroom import Report
from mudroom._adapters.workspaces.isolated.kept_work import remove_abandoned
from mudroom._core.events import (
    CheckFinished,
    RunStarted,
    ToolCallFinished,
    TurnFinished,
    WorkMerged,
)
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

LONG = bool(os.environ.get("MUDROOM_LONG"))
LINES = "".join(f"line {name}\n\n\n\n\n" for name in "abc")


def is_left_by_sed(path: str | Path) -> bool:
    """Return whether a file is the temporary one of a `sed -i` that the kill ended: it is work."""
    return Path(path).name.startswith("sed")


def read_files(folder: Path) -> dict[str, str]:
    """Return the texts of the files of a folder."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and not is_left_by_sed(p))
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def start_session(folder: Path, program: CrashProgram, lines: str) -> KilledSession:
    session = KilledSession(folder, program)
    (session.work / "lines.txt").write_text(lines)
    return session


def check_team(session: KilledSession) -> None:
    """Check that the next run saw the files of both, and that each run was merged once."""
    assert read_files(session.work) == {
        "input.txt": "input\n",
        "lead.txt": "of the lead\n",
        "lines.txt": LINES,
        "own.txt": "second run\n",
    }
    events = session.events()
    assert not find_violations(events)
    first, second = "1.1.1", "1.3.1"
    merged = Counter((e.child, e.state) for e in events if isinstance(e, WorkMerged))
    assert merged == Counter(((first, "merged"), (second, "merged")))
    started = Counter(event.run for event in events if isinstance(event, RunStarted))
    assert started == Counter(("1", first, second))
    reads = [
        event.result.text
        for event in events
        if isinstance(event, ToolCallFinished) and event.run == second and event.name == "read"
    ]
    assert any("of the lead" in text for text in reads), reads
    assert any("first run" in text for text in reads), reads
    assert asyncio.run(replay(events)) == events, "the record does not replay"


def check(session: KilledSession) -> None:
    """Check that each merge, run and answer is recorded once, and that no folder is left."""
    events = session.events()
    assert not find_violations(events)
    merged = Counter(event.child for event in events if isinstance(event, WorkMerged))
    assert merged >= Counter(("1.1.1", "1.1.2", "1.1.3"))
    assert set(merged.values()) == {1}
    started = Counter(event.run for event in events if isinstance(event, RunStarted))
    assert set(started.values()) == {1}
    answers = Counter(
        (event.run, event.turn) for event in events if isinstance(event, TurnFinished)
    )
    assert set(answers.values()) == {1}
    assert asyncio.run(replay(events)) == events, "the record does not replay"
    remove_abandoned(str(session.home))  # the kill may be in the middle of a removal
    runs = next((session.home / "isolated").iterdir()) / "runs"
    assert list(runs.iterdir()) == [], "a folder of an ended run is left"


@pytest.mark.timeout(3_000)
def test_s13_killed_at_any_point_the_work_of_isolated_children_is_merged_once(
    tmp_path: Path, figure: Figure
) -> None:
    def check_merges(session: KilledSession, report: Report) -> None:
        new = {f"new/{name}.txt": f"new {name}\n" for name in "abc"}
        lines = LINES.replace("line", "by")
        assert read_files(session.work) == {"input.txt": "input\n", "lines.txt": lines, **new}
        assert set(report.files_changed) == {"lines.txt", *new}
        merges = [event for event in session.events() if isinstance(event, WorkMerged)]
        assert [event.state for event in merges] == ["merged"] * 3

    points = kill_at_points(tmp_path, "ISOLATED", LINES, 29, check_merges)
    figure("killed around every append and rename of merges", f"{points} points, merged once")


@pytest.mark.timeout(3_000)
def test_s13_killed_at_any_point_work_that_comes_back_is_merged_once(
    tmp_path: Path, figure: Figure
) -> None:
    def check_lines(session: KilledSession, report: Report) -> None:
        lines = (session.work / "lines.txt").read_text().splitlines()
        assert sorted(lines) == ["by a", "by b", "by c", "head", "tail"]
        changed = {path for path in report.files_changed if not is_left_by_sed(path)}
        assert changed == {"lines.txt"}
        merges = [event for event in session.events() if isinstance(event, WorkMerged)]
        assert sum(event.state == "merged" for event in merges) == 3
        assert all(event.returned for event in merges if event.state != "merged")

    points = kill_at_points(tmp_path, "RETURNED", "head\ntail\n", 61, check_lines)
    figure("killed around every append and rename of hand-backs", f"{points} points, merged once")


@pytest.mark.timeout(3_000)
def test_s13_killed_at_any_point_only_checked_work_is_merged(
    tmp_path: Path, figure: Figure
) -> None:
    def check_files(session: KilledSession, report: Report) -> None:
        new = {f"new/{name}.txt": f"good {name}\n" for name in "abc"}
        assert read_files(session.work) == {"input.txt": "input\n", "lines.txt": "", **new}
        changed = {path for path in report.files_changed if not is_left_by_sed(path)}
        assert changed == set(new)
        events = session.events()
        merges = [event for event in events if isinstance(event, WorkMerged)]
        assert {event.child for event in merges if event.state == "red"} == {"1.1.3"}
        assert sum(event.state == "merged" for event in merges) == 3
        checks = [event for event in events if isinstance(event, CheckFinished)]
        assert len({event.tree for event in checks}) == len(checks), "a check ran twice"
        assert any("1.1.3~2" in event.children for event in checks if event.is_green)

    points = kill_at_points(tmp_path, "CHECKED", "", 61, check_files)
    figure("killed around every append and rename of checks", f"{points} points, merged once")


def kill_at_points(
    folder: Path,
    prompt: str,
    lines: str,
    step: int,
    check_more: Callable[[KilledSession, Report], None],
) -> int:
    """Kill a session at points and continue it; return the number of points.

    Arguments:
        lines: text of the file that the children change. step: between points in the short form.
        check_more: takes the session and its report.
    """
    program = CrashProgram({"CRASH_PROMPT": prompt})
    try:
        undisturbed = start_session(folder / "undisturbed", program, lines)
        points, _ = undisturbed.run()
        kills = [None, *list_stops(points, step)]
        for kill in kills:
            session = start_session(folder / str(kill and kill.point), program, lines)
            if kill:
                session.run(kill)
            _, report = session.run()
            assert report and report.text == "all three are merged", f"stopped by {kill}"
            check(session)
            check_more(session, report)
        return len(kills)
    finally:
        program.close()


@pytest.mark.timeout(3_000)
def test_s13_the_next_run_of_a_named_isolated_child_sees_the_merged_files_though_it_is_killed(
    tmp_path: Path, figure: Figure
) -> None:
    program = CrashProgram({"CRASH_PROMPT": "ISOLATED_TEAM"})
    try:
        undisturbed = start_session(tmp_path / "undisturbed", program, LINES)
        points, report = undisturbed.run()
        assert report and report.text == "both are merged"
        check_team(undisturbed)
        kills = list_stops(points, 29)
        for kill in kills:
            session = start_session(tmp_path / str(kill.point), program, LINES)
            session.run(kill)
            _, report = session.run()
            assert report and report.text == "both are merged", f"stopped by {kill}"
            check_team(session)
    finally:
        program.close()
    figure("killed between the runs of an isolated child", f"{len(kills)} points, merged once")


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("how", ["retry", "clean", "side", "drop"])
def test_s13_killed_at_any_point_a_decision_about_a_conflict_takes_effect_once(
    tmp_path: Path, figure: Figure, how: str
) -> None:
    program = CrashProgram({"CRASH_PROMPT": f"DECIDED {how}"})
    try:
        undisturbed = start_session(tmp_path / "undisturbed", program, "line\n")
        points, _ = undisturbed.run()
        check_decision(undisturbed, how)
        # The short form has the points of the decision: the other tests have those before it.
        last = [Kill(points - 26), Kill(13 - points)]
        kills = list_stops(points, 1) if LONG else last
        for kill in kills:
            session = start_session(tmp_path / str(kill.point), program, "line\n")
            session.run(kill)
            _, report = session.run()
            assert report and report.text == "decided", f"stopped by {kill}"
            check_decision(session, how)
    finally:
        program.close()
    figure(f"killed around every append and rename of merge {how}", f"{len(kills)} points")


def check_decision(session: KilledSession, how: str) -> None:
    """Check that the decision is recorded once, and that the files are as it says."""
    events = session.events()
    assert not find_violations(events)
    merges = [event for event in events if isinstance(event, WorkMerged)]
    ends = {event.child: event for event in merges if not event.call}
    assert len(ends) == 2 and len(merges) == 3, merges
    first, second = sorted(ends, key=lambda child: ends[child].state, reverse=True)
    assert (ends[first].state, ends[second].state) == ("merged", "conflict")
    (decision,) = [event for event in merges if event.call]
    assert (decision.child, decision.state) == (second, "dropped" if how == "drop" else "merged")
    prompts = {event.run: event.brief.prompt for event in events if isinstance(event, RunStarted)}
    assert len(prompts) == 3
    names = [prompts[run][-1] for run in (first, second)]
    line = names[how in ("retry", "side")]
    landed = names[:1] if how == "drop" else names
    assert read_files(session.work) == {
        "input.txt": "input\n",
        "lines.txt": f"by {line}\n",
        **{f"new/{name}.txt": f"new {name}\n" for name in sorted(landed)},
    }
    assert asyncio.run(replay(events)) == events, "the record does not replay"
