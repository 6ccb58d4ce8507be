"""Files `task_N.json`: byte for byte in and out, changes, cycles, ids, wrong files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom._adapters.boards.board import TaskBoard
from mudroom._adapters.boards.lesson_files import export_tasks, import_tasks
from mudroom.errors import UsageError


def write_task(folder: Path, number: int, text: str = "", **fields: object) -> None:
    task: dict[str, object] = {
        "id": number,
        "subject": f"任务 {number}",
        "description": "",
        "status": "pending",
        "blockedBy": [],
        "blocks": [],
        "owner": "",
        **fields,
    }
    folder.mkdir(exist_ok=True)
    (folder / f"task_{number}.json").write_text(text or json.dumps(task, indent=2))


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Return a folder as several versions of the lesson write it."""
    folder = tmp_path / ".tasks"
    write_task(folder, 1, status="completed", blocks=[2])
    write_task(folder, 2, blocks=[3])
    write_task(folder, 3, blockedBy=[2], status="in_progress", owner="alice")
    write_task(folder, 4, '{"subject": "é", "id": 4, "blockedBy": [3, 9], "activeForm": "x"}\n')
    return folder


def test_a_round_trip_is_equal_byte_for_byte(tasks: Path, tmp_path: Path) -> None:
    with TaskBoard(tmp_path / "board.db") as board:
        assert import_tasks(board, tasks) == 4
        assert [task.waits_for for task in board.list_tasks()] == [(), (), (2,), (3, 9)]
        assert board.get(3).owner == "alice"
        assert export_tasks(board, tmp_path / "out") == (4, [])
    assert read_files(tmp_path / "out") == read_files(tasks)


def test_changes_keep_the_order_of_keys_and_unknown_keys(tasks: Path, tmp_path: Path) -> None:
    before = read_files(tasks)
    with TaskBoard(tmp_path / "board.db") as board:
        import_tasks(board, tasks)
        board.mark_done(2)
        board.mark_done(3)
        added = board.add("neu", blockers=[4])
        export_tasks(board, tasks)
    after = read_files(tasks)
    assert after["task_1.json"] == before["task_1.json"]
    assert after["task_3.json"] == before["task_3.json"].replace(
        b"in_progress", b"completed"
    ).replace(b'"blockedBy": [\n    2\n  ]', b'"blockedBy": []')
    fourth = json.loads(after["task_4.json"])
    assert list(fourth)[:4] == ["subject", "id", "blockedBy", "activeForm"]
    assert (fourth["blockedBy"], fourth["activeForm"], fourth["blocks"]) == ([9], "x", [5])
    assert after[f"task_{added.id}.json"].decode() == json.dumps(
        {
            "id": 5,
            "subject": "neu",
            "description": "",
            "status": "pending",
            "blockedBy": [4],
            "blocks": [],
            "owner": "",
        },
        indent=2,
    )


def test_metadata_is_kept_through_import_and_export(tasks: Path, tmp_path: Path) -> None:
    write_task(tasks, 1, metadata={"agent": "coder", "check": "make test", "π": [1, None]})
    write_task(tasks, 2, '{"id": 2, "subject": "x", "metadata": null}')
    before = read_files(tasks)
    with TaskBoard(tmp_path / "board.db") as board:
        import_tasks(board, tasks)
        first = board.get(1)
        assert (first.agent, first.metadata["check"]) == ("coder", "make test")
        export_tasks(board, tmp_path / "same")
        assert read_files(tmp_path / "same") == before
        board.edit_metadata(1, {"agent": None, "priority": 2})
        board.add("new", metadata={"agent": "tester"})
        export_tasks(board, tmp_path / "out")
    after = read_files(tmp_path / "out")
    kept = {"check": "make test", "π": [1], "priority": 2}
    assert json.loads(after["task_1.json"])["metadata"] == {**kept, "π": [1, None]}
    assert json.loads(after["task_5.json"])["metadata"] == {"agent": "tester"}
    assert after["task_2.json"] == before["task_2.json"]
    with TaskBoard(tmp_path / "copy.db") as board:
        import_tasks(board, tmp_path / "out")
        assert board.get(5).agent == "tester" and board.claim_next("me", agent="other")


def test_a_cycle_in_files_is_named_and_nothing_is_imported(tasks: Path, tmp_path: Path) -> None:
    write_task(tasks, 2, blockedBy=[4])
    with TaskBoard(tmp_path / "board.db") as board:
        with pytest.raises(UsageError, match="cycle: #2 -> #4 -> #3 -> #2"):
            import_tasks(board, tasks)
        assert board.list_tasks() == []


def test_imported_ids_are_not_used_again(tasks: Path, tmp_path: Path) -> None:
    with TaskBoard(tmp_path / "board.db") as board:
        import_tasks(board, tasks)
        with pytest.raises(UsageError, match="has a task #1 already"):
            import_tasks(board, tasks)
        for folder in (tmp_path, tmp_path / "missing"):
            with pytest.raises(UsageError, match=r"no task files|No such file"):
                import_tasks(board, folder)
        board.add("five")
        board.remove([5])
        assert export_tasks(board, tasks) == (4, [])
    with TaskBoard(tmp_path / "other.db") as board:
        import_tasks(board, tasks)
        assert board.add("six").id == 6
        board.remove([4, 6])
        assert export_tasks(board, tasks) == (3, ["task_4.json"]), "it names left files"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not a task"),
        ('{"id": 1}', "subject: required"),
        ('{"id": 2, "subject": "x"}', "the file has the task #2"),
        ('{"id": 1, "subject": "x", "status": "lost"}', "lost"),
        ('{"id": 1, "subject": "x", "blockedBy": [1000000000000000000000]}', "blockedBy"),
        ("[" * 100_000, "not a task"),
        ('{"id": 1, "subject": "x", "metadata": {"agent": 3}}', "agent of a task is a text, not 3"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    write_task(tmp_path / "in", 1, text)
    with TaskBoard(tmp_path / "board.db") as board:
        with pytest.raises(UsageError, match=reason) as caught:
            import_tasks(board, tmp_path / "in")
        assert caught.value.where.endswith("task_1.json")
        assert board.list_tasks() == []
