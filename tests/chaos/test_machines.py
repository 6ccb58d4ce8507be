"""Isolated children on Ray nodes that have host names and state folders of their own.

The nodes are processes of this machine in namespaces: no node sees the folder of the session.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.workers.far_place import Place
from tests.workers.test_own_file_resumes import crash, finish, read_events

from mudroom import Reason, Report
from mudroom._core.events import RunFinished, RunResumed, RunStarted

from ..worker_kinds import NEEDS_RAY
from .cluster import RayCluster

pytestmark = [*NEEDS_RAY, pytest.mark.timeout(400)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def cluster(place: Place, monkeypatch: pytest.MonkeyPatch) -> Generator[RayCluster]:
    """Start a cluster of two nodes, `node-1` and `node-2`."""
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp", ignore_cleanup_errors=True) as at:
        cluster = RayCluster(Path(at))
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        try:
            for number in (1, 2):
                add_node(cluster, place, f"node-{number}")
            yield cluster
        finally:
            cluster.remove()


def add_node(cluster: RayCluster, place: Place, name: str) -> None:
    """Start a node with a host name and a state folder of its own."""
    folders = [str(place.folder / each) for each in ("project", "home")]
    hidden = [part for folder in folders for part in ("--tmpfs", folder)]
    cluster.add_node(
        [
            *("bwrap", "--dev-bind", "/", "/", *hidden, "--unshare-uts", "--hostname", name),
            *("--setenv", "MUDROOM_HOME", str(place.folder / name)),
        ]
    )


def list_machines(place: Place) -> dict[str, str]:
    """Return the machine where each child began."""
    events = [event for event in read_events(place) if isinstance(event, RunStarted)]
    return {each.run: each.brief.workspace.machine for each in events if each.brief.depth}


def read_reports(place: Place) -> dict[str, Report]:
    return {each.run: each.report for each in read_events(place) if isinstance(each, RunFinished)}


def test_a_resumed_session_continues_an_isolated_child_on_the_node_that_has_its_files(
    cluster: RayCluster, place: Place
) -> None:
    crash(place, "ray:2", "begun", 2)
    machines = list_machines(place)
    assert sorted(machines.values()) == ["node-1", "node-2"]
    assert finish(place, "ray:2", "resumed", 2).startswith("GOAL")
    resumed = [event for event in read_events(place) if isinstance(event, RunResumed)]
    assert {each.run: each.machine for each in resumed if each.machine} == machines
    texts = [(place.project / f"{child}.txt").read_text() for child in range(2)]
    assert texts == ["begun\nresumed\n"] * 2


def test_a_resumed_child_whose_node_is_gone_is_lost_and_the_other_one_goes_on(
    cluster: RayCluster, place: Place
) -> None:
    crash(place, "ray:2", "begun", 2)
    (lost,) = [run for run, machine in list_machines(place).items() if machine == "node-2"]
    cluster.kill_node("127.0.0.2")
    assert finish(place, "ray:2", "resumed", 2).startswith("GOAL")
    reports = read_reports(place)
    reasons = {run: report.reason for run, report in reports.items()}
    assert reasons == {"1": Reason.GOAL, "1.1.1": Reason.GOAL, "1.1.2": Reason.GOAL} | {
        lost: Reason.LOST
    }
    assert "it began on node-2 with the tree" in reports[lost].error
    assert len(list(place.project.glob("[01].txt"))) == 1


def test_a_resumed_child_gets_a_worker_process_on_the_node_that_has_its_files(
    cluster: RayCluster, place: Place
) -> None:
    crash(place, "ray:2", "begun", 2)
    assert finish(place, "ray:1", "resumed", 2).startswith("GOAL")
    texts = [(place.project / f"{child}.txt").read_text() for child in range(2)]
    assert texts == ["begun\nresumed\n"] * 2
