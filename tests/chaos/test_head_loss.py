"""C6: the loss of a Ray cluster's head: children end, and a new cluster continues a session."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import pytest
from tests.workers.crash_program import CHILDREN
from tests.workers.test_process_faults import DONE, check_log, check_record, start, wait_for_log

from ..worker_kinds import NEEDS_RAY
from .cluster import RayCluster

pytestmark = [*NEEDS_RAY, pytest.mark.timeout(400)]


def test_c6_children_end_when_the_cluster_is_lost_and_a_new_cluster_continues_the_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sessions = [str(uuid.UUID(int=number)) for number in (6, 66)]
    with tempfile.TemporaryDirectory(prefix="head-", dir="/tmp", ignore_cleanup_errors=True) as at:
        lost = RayCluster(Path(at))
        try:
            lost.add_node()
            monkeypatch.setenv("RAY_ADDRESS", lost.address)
            for name in sessions:
                (tmp_path / name).mkdir()
            programs = [start(tmp_path / name, name, "ray:2") for name in sessions]
            wait_for_log(tmp_path / sessions[1], CHILDREN)
            programs[1].kill()  # at once, before its children end
            wait_for_log(tmp_path / sessions[0], CHILDREN)
            lost.kill_head()
            programs[1].communicate()
            output, _ = programs[0].communicate(timeout=120)
        finally:
            lost.remove()
        monkeypatch.undo()
    reports = output.removeprefix("GOAL ").split(" | ")
    assert len(reports) == CHILDREN
    assert all("is done" in report or "LOST" in report for report in reports)
    resumed, _ = start(tmp_path / sessions[1], sessions[1], "ray:2").communicate(timeout=120)
    assert resumed.strip() == f"GOAL {DONE}"
    check_log(tmp_path / sessions[1])
    for name in sessions:
        check_record(tmp_path / name, name)
