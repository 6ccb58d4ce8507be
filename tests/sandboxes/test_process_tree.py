"""Selection of the processes that belong to a command."""

from __future__ import annotations

from mudroom._adapters.sandboxes.unsandboxed import select_members
from mudroom._platform.processes import Process


def make_process(pid: int, parent: int, session: int) -> Process:
    return Process(pid, "S", parent, session, 1, 500)  # all started in the same tick


def test_a_child_with_a_lower_id_than_its_parent_is_found() -> None:
    """Ids begin again after the last one, so a child may have a lower id."""
    processes = [
        make_process(40, 32_700, 32_700),
        make_process(41, 40, 32_700),
        make_process(90, 1, 90),
        make_process(32_700, 32_600, 32_700),
    ]
    marked = {32_700}
    found = select_members(processes, {32_500}, 32_500, marked.__contains__)
    assert [process.pid for process in found] == [32_700, 40, 41]


def test_processes_of_the_session_and_known_ones_are_found_without_a_parent() -> None:
    processes = [make_process(7, 1, 5), make_process(8, 1, 8), make_process(9, 8, 9)]
    found = select_members(processes, {8}, 5, lambda _: False)
    assert {process.pid for process in found} == {7, 8, 9}
