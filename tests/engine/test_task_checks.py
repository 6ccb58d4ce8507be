"""Checks of tasks of the board: they decide whether the work on a claimed task is merged."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Lines, Stage

from mudroom import Agent, Children, Isolation, Permissions, WorkspaceKind
from mudroom._adapters.boards.board import TaskBoard
from mudroom._adapters.boards.file import get_board_path
from mudroom._adapters.boards.lesson_files import import_tasks
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom.events import CheckFinished

TASK_CHECK = "! grep bad code.txt"
"""The check of a task: it fails if the file has the word "bad"."""

OTHER_CHECK = "! grep good code.txt"
"""The check of the session, or of the agent. It fails with work that the task's check lets pass."""

CODER = Agent(
    name="coder",
    description="Codes.",
    claims_tasks=True,
    tools=("write",),
    workspace=WorkspaceKind.ISOLATED,
)


@pytest.fixture
def path(stage: Stage) -> Path:
    return get_board_path(stage.home, str(stage.folder.resolve()))


COMMAND = "touch new.txt"
"""A check that is a command for which mudroom asks."""


def add_task(path: Path, check: str = TASK_CHECK) -> None:
    with TaskBoard(path) as board:
        board.add("write the code", metadata={"check": check})


def import_task(path: Path, folder: Path) -> None:
    """Import a task with the check COMMAND."""
    folder.mkdir()
    task = {"id": 1, "subject": "write the code", "metadata": {"check": COMMAND}}
    (folder / "task_1.json").write_text(json.dumps(task))
    with TaskBoard(path) as board:
        import_tasks(board, folder)


def list_tasks(path: Path) -> list[tuple[int, str, str]]:
    """Return id, status and report of the tasks."""
    with TaskBoard(path) as board:
        return [(task.id, task.status, task.report) for task in board.list_tasks()]


def list_checks(stage: Stage) -> list[tuple[str, bool]]:
    """Return the commands of the checks, and whether they succeeded."""
    finished = [event for event in stage.events if isinstance(event, CheckFinished)]
    return [(event.command, event.is_green) for event in finished]


def write(text: str) -> Lines:
    """Return the answers of a child that writes the file and ends."""
    return [[call("write", file_path="code.txt", content=text)], "written"]


def make_script(child: Lines) -> dict[str, Lines]:
    lead: list[Answer] = [[call("task", prompt="ALICE", agent="coder", name="alice")]]
    return {"PARENT": [*lead, *["the lead is done"] * 5], "ALICE": ["alice is ready", *child]}


async def run(stage: Stage, child: Lines, agent: Agent = CODER, **options: Any) -> None:
    """Run a prompt in which alice takes the task; its record replays."""
    options = {"sandbox": "auto", "isolation": Isolation(max_returns=0), **options}
    await stage.run_checked(make_script(child), agents=(agent,), **options)


@pytest.mark.parametrize("is_of_agent", [True, False])
async def test_the_check_of_a_task_comes_before_those_of_agent_and_session(
    stage: Stage, path: Path, *, is_of_agent: bool
) -> None:
    add_task(path)
    agent = Agent(
        name="coder",
        claims_tasks=True,
        tools=("write",),
        workspace=WorkspaceKind.ISOLATED,
        check=OTHER_CHECK if is_of_agent else "",
    )
    check = "" if is_of_agent else OTHER_CHECK
    await run(stage, write("good\n"), agent, isolation=Isolation(check=check, max_returns=0))
    assert list_checks(stage) == [(TASK_CHECK, True)]
    assert list_tasks(path) == [(1, "completed", "written")]
    assert (stage.folder / "code.txt").read_text() == "good\n"


async def test_a_task_whose_check_fails_is_not_completed(stage: Stage, path: Path) -> None:
    add_task(path)
    await run(stage, write("bad\n"))
    assert list_checks(stage)[0] == (TASK_CHECK, False)
    assert list_tasks(path) == [(1, "pending", "Done, but its files are not merged")]
    assert not (stage.folder / "code.txt").exists()


async def test_a_task_is_completed_when_its_repaired_work_is_merged(
    stage: Stage, path: Path
) -> None:
    add_task(path)
    await run(stage, [*write("bad\n"), *write("good\n")], isolation=Isolation(max_returns=1))
    assert (TASK_CHECK, False) in list_checks(stage)
    assert list_checks(stage)[-1] == (TASK_CHECK, True)
    assert list_tasks(path) == [(1, "completed", "written")]
    assert (stage.folder / "code.txt").read_text() == "good\n"


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_the_check_of_an_imported_task_needs_a_permission(
    stage: Stage, path: Path, tmp_path: Path, *, is_allowed: bool
) -> None:
    import_task(path, tmp_path / "tasks")
    rules = Permissions.of(allow=["Write", "Bash(touch:*)"] if is_allowed else ["Write"])
    await run(stage, write("good\n"), permissions=rules)
    assert list_checks(stage) == ([(COMMAND, True)] if is_allowed else [])
    status = "completed" if is_allowed else "pending"
    assert [task[1] for task in list_tasks(path)] == [status]
    assert (stage.folder / "code.txt").exists() == is_allowed


async def test_the_check_that_the_user_gave_a_task_needs_no_confirmation(
    stage: Stage, path: Path
) -> None:
    add_task(path, COMMAND)
    await run(stage, write("good\n"), permissions=Permissions.of(allow=["Write"], ask=["Bash"]))
    assert list_checks(stage) == [(COMMAND, True)]
    assert list_tasks(path) == [(1, "completed", "written")]


async def test_a_run_does_not_change_the_check_of_a_task(stage: Stage, path: Path) -> None:
    add_task(path)
    answers: list[Answer] = [
        [
            call("task_update", task_id=1, metadata={"check": None}),
            call("task_update", task_id=1, metadata={"check": "true"}),
            call("task_create", subject="another", metadata={"check": "true"}),
        ],
        "done",
    ]
    await stage.run(answers, children=Children(board=True))
    assert [result.error for result in stage.results] == [True] * 3
    assert all("the user gives the check of a task" in result.text for result in stage.results)
    with TaskBoard(path) as board:
        assert [task.check for task in board.list_tasks()] == [TASK_CHECK]


async def test_a_child_does_not_complete_a_task_that_has_a_check(stage: Stage, path: Path) -> None:
    add_task(path)
    agent = Agent(
        name="coder",
        claims_tasks=True,
        tools=("write", "task_update"),
        workspace=WorkspaceKind.ISOLATED,
    )
    texts: list[str] = []

    def end(request: Request) -> Answer:
        texts.append(str(request.messages[-1].content))
        return "written"

    change = [
        call("write", file_path="code.txt", content="bad\n"),
        call("complete_task", task_id=1),
    ]
    await run(stage, [change, end], agent)
    assert "task #1 has a check" in texts[0]
    assert [task[1] for task in list_tasks(path)] == ["pending"]


async def test_a_check_that_is_not_used_is_named(
    stage: Stage, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_task(path)
    agent = Agent(name="coder", claims_tasks=True, tools=("write",))
    with caplog.at_level(logging.WARNING, "mudroom"):
        await run(stage, write("bad\n"), agent)
    assert "the check of task #1 is not used: alice has no isolated workspace" in caplog.text
    assert list_checks(stage) == []
    assert list_tasks(path) == [(1, "completed", "written")]
