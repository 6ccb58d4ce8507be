"""The task board: readiness, claims, cycles, ids, and files that cannot be used."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mudroom._adapters.boards import file
from mudroom._adapters.boards.board import TaskBoard, require_no_cycle
from mudroom._adapters.boards.file import find_file_system, get_board_path
from mudroom.errors import BoardError, UsageError

ORDINARY_USER = 54_321
"""Id of a user that owns nothing on this machine."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return get_board_path(tmp_path, "/project")


@pytest.fixture
def board(path: Path) -> Generator[TaskBoard]:
    with TaskBoard(path) as board:
        yield board


def list_ready(board: TaskBoard) -> list[int]:
    return [task.id for task in board.list_tasks() if task.is_ready]


def test_a_task_is_ready_when_all_its_blockers_are_completed(board: TaskBoard) -> None:
    for subject, blockers in (("parse", ()), ("transform", [1]), ("emit", [1]), ("test", [2, 3])):
        board.add(subject, blockers=blockers)
    assert list_ready(board) == [1]
    assert board.mark_done(1) == [2, 3]
    with pytest.raises(UsageError, match="#4 waits for #2, #3"):
        board.mark_done(4)
    assert board.mark_done(3) == []
    assert board.mark_done(2) == [4]
    assert board.get(4).blockers == (2, 3)
    board.reopen(2)
    assert list_ready(board) == [2], "it blocks its dependants again"
    with pytest.raises(UsageError, match="#2 is pending"):
        board.reopen(2)


def test_a_task_is_claimed_once_and_completed_by_its_owner(path: Path) -> None:
    with TaskBoard(path) as alice, TaskBoard(path) as bob:
        alice.add("one")
        claim = alice.claim_next("alice")
        assert claim and claim.owner == "alice"
        assert bob.claim_next("bob") is None
        works: list[Callable[[], object]] = [
            lambda: bob.claim(1, "bob"),
            lambda: bob.mark_done(1),
            lambda: bob.reopen(1),
            lambda: bob.remove([1]),
        ]
        for work in works:
            with pytest.raises(UsageError, match="alice works on task #1"):
                work()
        assert bob.complete(claim) is None
        assert alice.complete(claim, "It works.") == []
        assert alice.complete(claim) is None
        assert (bob.get(1).status, bob.get(1).report) == ("completed", "It works.")


def test_a_task_that_was_returned_is_not_completed_by_its_former_owner(path: Path) -> None:
    with TaskBoard(path) as board:
        board.add("one")
        former = board.claim(1, "first")
        board.release(former, "It failed.")
        assert board.get(1).report == "It failed."
        latter = board.claim(1, "second")
        assert board.complete(former) is None
        assert board.complete(latter) == []


def test_the_metadata_of_a_task_names_the_agent_that_may_claim_it(board: TaskBoard) -> None:
    board.add("for all")
    board.add("for testers", metadata={"agent": "tester"})
    with pytest.raises(UsageError, match="only the agent 'tester' may claim task #2"):
        board.claim(2, "me", agent="coder")
    claims = [board.claim_next("me", agent="coder") for _ in range(2)]
    assert [claim and claim.id for claim in claims] == [1, None]
    claim = board.claim_next("me", agent="tester")
    assert claim and claim.id == 2
    board.release(claim)
    assert board.claim_next("me"), "a claim for any agent"


def test_a_higher_priority_and_then_the_lowest_id_comes_first(board: TaskBoard) -> None:
    for priority in (None, 1, 2, 2, 2, -1):
        board.add(f"priority {priority}", metadata={"priority": priority})
    claims = [board.claim_next("me", without=[3]), *(board.claim_next("me") for _ in range(6))]
    assert [claim and claim.id for claim in claims] == [4, 3, 5, 2, 1, 6, None]


@pytest.mark.parametrize(
    "metadata", [{"agent": 3}, {"priority": "high"}, {"priority": True}, {"check": 3}]
)
def test_wrong_metadata_is_an_error(board: TaskBoard, metadata: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"metadata\.(agent|priority|check) of a task is a"):
        board.add("one", metadata=metadata)
    board.add("two")
    with pytest.raises(UsageError, match="of a task is a"):
        board.edit_metadata(1, metadata)
    assert board.get(1).metadata == {}


def test_a_board_that_closes_returns_its_tasks(path: Path) -> None:
    with TaskBoard(path) as board:
        board.add("one")
        board.claim_next("me")
    with TaskBoard(path) as board:
        assert list_ready(board) == [1]
        assert not list(path.with_name(f"{path.name}.owners").iterdir())


def test_a_completion_waits_for_the_disk_and_a_claim_does_not(board: TaskBoard) -> None:
    statements: list[str] = []
    board.add("one")
    with board.change() as connection:
        connection.set_trace_callback(statements.append)
    statements.clear()
    task = board.claim_next("alice")
    assert task
    claim = [text for text in statements if "synchronous" in text or text == "COMMIT"]
    statements.clear()
    assert board.complete(task) == []
    completion = [text for text in statements if "synchronous" in text or text == "COMMIT"]
    assert claim == ["PRAGMA synchronous = NORMAL", "COMMIT"]
    assert completion == ["PRAGMA synchronous = FULL", "COMMIT"]


def test_a_killed_process_loses_its_tasks_at_once(board: TaskBoard) -> None:
    board.add("one")
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from mudroom._adapters.boards.board import TaskBoard\n"
        "TaskBoard(Path(sys.argv[1])).claim_next('killed')\nos.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(board.path)], check=False)
    assert board.read_tasks()[0].owner == "killed"
    claim = board.claim_next("me")
    assert claim and claim.owner == "me"
    (row,) = sqlite3.connect(board.path).execute("SELECT count(*) FROM log WHERE change='returned'")
    assert row == (1,)


def test_a_cycle_is_refused_with_its_path(board: TaskBoard) -> None:
    board.add("one")
    board.add("two", blockers=[1])
    board.add("three", blockers=[2])
    with pytest.raises(UsageError, match="cycle: #1 -> #3 -> #2 -> #1"):
        board.add_blockers(1, [3])
    with pytest.raises(UsageError, match="cycle: #2 -> #2"):
        board.add_blockers(2, [2])
    assert list_ready(board) == [1]


def test_a_long_chain_has_no_cycle() -> None:
    chain = {task: [task + 1] for task in range(5_000)}
    require_no_cycle(chain)
    with pytest.raises(UsageError, match=r"cycle: #0 -> .* -> #5000 -> #0"):
        require_no_cycle({**chain, 5_000: [0]})


def test_ids_are_never_used_again(path: Path) -> None:
    with TaskBoard(path) as board:
        board.add("one")
        board.add("two", blockers=[1])
        with pytest.raises(UsageError, match="#2 depends on it"):
            board.remove([1])
        board.remove([1, 2])
    with TaskBoard(path) as board:
        assert board.add("three").id == 3


@pytest.mark.parametrize("action", ["get", "reopen", "mark_done"])
def test_an_unknown_task_is_an_error(board: TaskBoard, action: str) -> None:
    with pytest.raises(UsageError, match="no task #7"):
        getattr(board, action)(7)
    with pytest.raises(UsageError, match="no task #7"):
        board.add("one", blockers=[7])
    assert board.list_tasks() == []


def test_texts_that_utf_8_cannot_hold_are_cleaned(board: TaskBoard) -> None:
    assert board.add("a\udcff\n b", "\ud800").subject == "a\ufffd b"
    with pytest.raises(UsageError, match="blank"):
        board.add(" \n ")


@pytest.mark.parametrize("damage", [b"no database at all" * 99, b""])
def test_a_damaged_board_is_an_error_with_a_remedy(path: Path, damage: bytes) -> None:
    with TaskBoard(path) as board:
        for number in range(200):
            board.add(f"task {number}", "text " * 100)
    data = bytearray(path.read_bytes())
    data[4096 : 4096 * 20] = b"\xff" * 4096 * 19
    path.write_bytes(damage or data)
    with pytest.raises(BoardError, match=r"damaged.*Move .*import"), TaskBoard(path) as board:
        board.list_tasks()


def test_a_file_of_another_program_or_of_a_newer_version_is_not_changed(path: Path) -> None:
    path.parent.mkdir()
    for statement, text in (
        ("CREATE TABLE other (id)", "not a task board"),
        ("PRAGMA user_version = 99", "newer version"),
    ):
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()
        with pytest.raises(BoardError, match=text):
            TaskBoard(path)


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file in place of the folder")
    with pytest.raises(BoardError, match=r"cannot be opened.*MUDROOM_HOME"):
        TaskBoard(get_board_path(tmp_path / "home", "/project"))


@contextmanager
def act_as_ordinary_user(folder: Path) -> Generator[None]:
    """Give a folder to a user that is not root, and act as that user."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, ORDINARY_USER, ORDINARY_USER)
    os.seteuid(ORDINARY_USER)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_board_is_an_error_with_a_remedy() -> None:
    with TemporaryDirectory() as folder:
        path = get_board_path(folder, "/project")
        TaskBoard(path).close()
        with act_as_ordinary_user(Path(folder)):
            path.chmod(0o400)
            path.parent.chmod(0o500)
            with (
                pytest.raises(BoardError, match=r"cannot be written.*writable"),
                TaskBoard(path) as board,
            ):
                board.add("one")
            path.parent.chmod(0o700)


def test_a_change_waits_for_the_change_of_another_process(
    path: Path, board: TaskBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TaskBoard(path) as other, ThreadPoolExecutor(1) as pool:
        with other.change():
            adding = pool.submit(_add_in_another_connection, path)
            with pytest.raises(TimeoutError):
                adding.result(timeout=0.2)
        assert adding.result(timeout=60) == 1
        monkeypatch.setattr(file, "_LOCK_TIMEOUT", 0.01)
        with other.change(), pytest.raises(BoardError, match=r"has locked.*Close the other"):
            board.add("two")
    assert board.add("three").id == 2


def _add_in_another_connection(path: Path) -> int:
    with TaskBoard(path) as board:
        return board.add("one").id


def test_a_board_on_a_network_file_system_is_refused_when_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = "dev / ext4 rw 0 0\nhost:/x /mnt/my\\040share nfs4 rw 0 0\n"
    assert find_file_system(Path("/mnt/my share/a"), mounts) == "nfs4"
    assert find_file_system(Path("/mnt/other"), mounts) == "ext4"
    assert find_file_system(Path("/"), "") == ""
    path = tmp_path / "boards" / "a.db"
    share = f"host:/export {tmp_path} nfs4 rw,relatime,vers=4.2 0 0\n"
    mounts = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape") + share
    monkeypatch.setattr(file, "_read_mounts", lambda: mounts)
    expected = r"network file system \(nfs4\).*a\.db.*Set MUDROOM_HOME to a folder on a local disk"
    with pytest.raises(BoardError, match=expected):
        TaskBoard(path)
    assert not path.exists(), "no file is made there"
