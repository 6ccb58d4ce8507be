"""Scenes that are killed, or sent SIGTERM, at any point, and resumed: each effect comes once.

`crash.py` has the scenes: background work, teams, the task board, and merges of isolated work. The
record of each keeps all promises and replays.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from mudroom import Report
from mudroom._adapters.boards.board import TaskBoard
from mudroom._adapters.workspaces.isolated.kept_work import remove_abandoned
from mudroom._core.events import (
    CheckFinished,
    MessageDelivered,
    RunStarted,
    StoredEvent,
    TeamMessageSent,
    ToolCallFinished,
    WorkMerged,
)
from mudroom._projections.team import Roster

from .conftest import Figure
from .killed import LONG, Kill, KilledSession, list_stops, stop_at_points
from .test_teams import check_team_record

LINES = "".join(f"line {name}\n\n\n\n\n" for name in "abc")


def count_runs(events: list[StoredEvent]) -> Counter[str]:
    return Counter(event.run for event in events if isinstance(event, RunStarted))


def list_merges(events: list[StoredEvent]) -> list[WorkMerged]:
    return [event for event in events if isinstance(event, WorkMerged)]


def is_left_by_sed(path: str | Path) -> bool:
    """Return whether a file is the temporary one of a `sed -i` that the kill ended: it is work."""
    return Path(path).name.startswith("sed")


def check_files(session: KilledSession, **files: str) -> None:
    """Check the files of the folder, but `input.txt`; "/" in a name is "__"."""
    paths = (p for p in session.work.rglob("*") if p.is_file() and not is_left_by_sed(p))
    found = {str(path.relative_to(session.work)): path.read_text() for path in paths}
    assert found == {"input.txt": "input\n"} | {
        f"{name.replace('__', '/')}.txt": text for name, text in files.items()
    }


def check_background(session: KilledSession, report: Report) -> None:
    """Check that each end was read once, and that no command ran twice."""
    assert report.text == "all five have ended"
    events = session.read_record()
    assert count_runs(events).keys() == {"1", "1.1.1", "1.1.2", "1.1.3"}
    read = {event.message_id for event in events if isinstance(event, MessageDelivered)}
    assert {"1.1.1#end", "1.1.2#end", "1.1.3#end"} <= read
    results = [e for e in events if isinstance(e, ToolCallFinished) and e.run == "1"]
    interrupted = sum(event.result.error for event in results)
    assert len(read) + interrupted >= 5
    effects = session.work / "effects.txt"
    done = Counter(effects.read_text().split() if effects.exists() else ())
    assert max(done.values(), default=0) <= 1


def check_team(session: KilledSession, report: Report) -> None:
    """Check that each message was sent and read once, and that the list of names agrees."""
    assert report.text == "both have read"
    events = session.read_record()
    check_team_record(events)
    sent = Counter(e.message.text for e in events if isinstance(e, TeamMessageSent))
    assert {text for text in sent if text.startswith("PARENT")} == {
        "PARENT TO ann",
        "PARENT TO ben",
    }
    assert max(sent.values()) == 1
    roster = Roster()
    for event in events:
        roster.apply(event)
    assert [(each.name, each.unread) for each in roster.teammates] == [("ann", {}), ("ben", {})]


def check_changes(session: KilledSession, reports: list[str]) -> list[StoredEvent]:
    """Check that each task was added, claimed, and completed with its report, or returned, once.

    Arguments:
        reports: of the tasks; "-" for one that is returned.
    """
    (path,) = session.home.glob("boards/*.db")
    with TaskBoard(path) as board:
        found = [task.report if task.status == "completed" else "-" for task in board.list_tasks()]
    assert found == reports
    connection = sqlite3.connect(path)
    changes = Counter(connection.execute("SELECT task, change FROM log").fetchall())
    connection.close()
    ends = {"-": "returned"}
    expected = [
        (number, change)
        for number, report in enumerate(reports, start=1)
        for change in ("added", "claimed", ends.get(report, "completed"))
    ]
    assert changes == Counter(expected)
    return session.read_record()


def check_board(session: KilledSession, report: Report) -> None:
    assert report.text == "the board is done"
    events = check_changes(session, ["", "", "", "-"])
    results = [event.result for event in events if isinstance(event, ToolCallFinished)]
    assert not [result.text for result in results if result.error]


def check_claims(session: KilledSession, report: Report) -> None:
    assert report.text == "none works"
    events = check_changes(session, [f"report of task {number}" for number in (1, 2, 3)])
    assert count_runs(events).keys() == {"1", "1.2.1", "1.2.1~2", "1.2.1~3", "1.2.1~4"}


def check_merges(session: KilledSession, report: Report) -> list[WorkMerged]:
    """Check that each merge is recorded once, and that no folder of a run is left."""
    assert report.text == "all three are merged"
    merges = list_merges(session.read_record())
    merged = Counter(event.child for event in merges)
    assert merged.keys() >= {"1.1.1", "1.1.2", "1.1.3"}
    assert set(merged.values()) == {1}
    assert sum(event.state == "merged" for event in merges) == 3
    remove_abandoned(str(session.home))  # the kill may be in the middle of a removal
    runs = next((session.home / "isolated").iterdir()) / "runs"
    assert list(runs.iterdir()) == [], "a folder of an ended run is left"
    return merges


def check_isolated(session: KilledSession, report: Report) -> None:
    new = {f"new__{name}": f"new {name}\n" for name in "abc"}
    check_files(session, lines=LINES.replace("line", "by"), **new)
    assert set(report.files_changed) == {"lines.txt", "new/a.txt", "new/b.txt", "new/c.txt"}
    assert len(check_merges(session, report)) == 3


def check_returned(session: KilledSession, report: Report) -> None:
    lines = (session.work / "lines.txt").read_text().splitlines()
    assert sorted(lines) == ["by a", "by b", "by c", "head", "tail"]
    assert {path for path in report.files_changed if not is_left_by_sed(path)} == {"lines.txt"}
    merges = check_merges(session, report)
    assert all(event.returned for event in merges if event.state != "merged")


def check_checked(session: KilledSession, report: Report) -> None:
    check_files(session, lines="", **{f"new__{name}": f"good {name}\n" for name in "abc"})
    changed = {path for path in report.files_changed if not is_left_by_sed(path)}
    assert changed == {"new/a.txt", "new/b.txt", "new/c.txt"}
    merges = check_merges(session, report)
    assert {event.child for event in merges if event.state == "red"} == {"1.1.3"}
    checks = [event for event in session.read_record() if isinstance(event, CheckFinished)]
    assert len({event.tree for event in checks}) == len(checks), "a check ran twice"
    assert any("1.1.3~2" in event.children for event in checks if event.is_green)


def check_isolated_team(session: KilledSession, report: Report) -> None:
    """Check that the next run saw the files of both, and that each run was merged once."""
    assert report.text == "both are merged"
    check_files(session, lead="of the lead\n", lines=LINES, own="second run\n")
    events = session.read_record()
    merged = [(event.child, event.state) for event in list_merges(events)]
    assert merged == [("1.1.1", "merged"), ("1.3.1", "merged")]
    assert count_runs(events).keys() == {"1", "1.1.1", "1.3.1"}
    results = [e for e in events if isinstance(e, ToolCallFinished) and e.run == "1.3.1"]
    reads = [event.result.text for event in results if event.name == "read"]
    assert any("of the lead" in text for text in reads), reads
    assert any("first run" in text for text in reads), reads


class Scene(Struct):
    """A scene of `crash.py`.

    Arguments:
        step: points between two stops in the short form.
        lines: text of the file that isolated children change.
    """

    step: int
    figure: str
    check: Callable[[KilledSession, Report], object]
    lines: str | None = None


SCENES = {
    "BACKGROUND": Scene(
        23,
        "killed around every append and effect of background work: each report read once",
        check_background,
    ),
    "TEAM": Scene(29, "killed around every append of a team: each message read once", check_team),
    "BOARD": Scene(
        23, "killed around every append and change of the board: each once", check_board
    ),
    "CLAIMS": Scene(23, "killed around every append and claim of a child: each once", check_claims),
    "ISOLATED": Scene(
        29, "killed around every append and rename of merges: merged once", check_isolated, LINES
    ),
    "RETURNED": Scene(
        61,
        "killed around every append and rename of hand-backs: merged once",
        check_returned,
        "head\ntail\n",
    ),
    "CHECKED": Scene(
        61, "killed around every append and rename of checks: merged once", check_checked, ""
    ),
    "ISOLATED_TEAM": Scene(
        29, "killed between the runs of an isolated child: merged once", check_isolated_team, LINES
    ),
}
PROMISES = {"BACKGROUND": "s4_s11", "TEAM": "s11", "BOARD": "s12", "CLAIMS": "s12"}
"""What a scene is about; S13 for the others."""


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(
    "prompt", [pytest.param(p, id=f"{PROMISES.get(p, 's13')}-{p.lower()}") for p in SCENES]
)
def test_s4_s11_s12_s13_s17_stopped_at_any_point_each_effect_comes_once(
    tmp_path: Path, prompt: str, figure: Figure
) -> None:
    scene = SCENES[prompt]
    files = None if scene.lines is None else {"lines.txt": scene.lines}
    stops = stop_at_points(
        tmp_path, prompt, lambda points: list_stops(points, scene.step), scene.check, files
    )
    name, _, outcome = scene.figure.partition(": ")
    figure(name, f"{stops} points, {outcome}")


def check_decision(session: KilledSession, how: str) -> None:
    """Check that the decision is recorded once, and that the files are as it says."""
    events = session.read_record()
    merges = list_merges(events)
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
    landed = {f"new__{name}": f"new {name}\n" for name in names[: 1 if how == "drop" else 2]}
    check_files(session, lines=f"by {line}\n", **landed)


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("how", ["retry", "clean", "side", "drop"])
def test_s13_stopped_at_any_point_a_decision_about_a_conflict_takes_effect_once(
    tmp_path: Path, figure: Figure, how: str
) -> None:
    def choose_stops(points: int) -> list[Kill]:
        # The short form has the points of the decision: the other scenes have those before it.
        return list_stops(points, 1) if LONG else [Kill(points - 26), Kill(13 - points)]

    def check(session: KilledSession, report: Report) -> None:
        assert report.text == "decided"
        check_decision(session, how)

    files = {"lines.txt": "line\n"}
    stops = stop_at_points(tmp_path, f"DECIDED {how}", choose_stops, check, files)
    figure(f"killed around every append and rename of merge {how}", f"{stops} points")
