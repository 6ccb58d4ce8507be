"""Tasks of the board that idle named children take by themselves (agent key `claims`).

A check of a task decides whether the work on it is merged.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.conftest import Lines, Stage, Step

from mudroom import Agent, Budget, Children, Isolation, Permissions, WorkspaceKind
from mudroom._adapters.boards.board import TaskBoard
from mudroom._adapters.boards.file import get_board_path
from mudroom._adapters.boards.lesson_files import import_tasks
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom.events import CheckFinished, RunStarted, TeamMessageSent

CODER = Agent(name="coder", description="Codes.", claims_tasks=True, tools=("read", "write"))
ISOLATED = replace(CODER, tools=("write",), workspace=WorkspaceKind.ISOLATED)
TESTER = Agent(name="tester", description="Tests.", claims_tasks=True, tools=("read",))
SPAWN = [
    call("task", prompt="ALICE", agent="coder", name="alice", background=True),
    call("task", prompt="BOB", agent="tester", name="bob", background=True),
]


@pytest.fixture
def path(stage: Stage) -> Path:
    return get_board_path(stage.home, str(stage.folder.resolve()))


def add_tasks(path: Path, *tasks: tuple[str, list[int], str], check: str | None = None) -> None:
    """Add tasks: subject, ids of the tasks before, agent."""
    with TaskBoard(path) as board:
        for subject, blockers, agent in tasks:
            metadata = {"agent": agent or None, "check": check}
            board.add(subject, blockers=blockers, metadata=metadata)


def list_tasks(path: Path) -> list[tuple[int, str, str]]:
    """Return id, status and report of the tasks."""
    with TaskBoard(path) as board:
        return [(task.id, task.status, task.report) for task in board.list_tasks()]


def list_claims(stage: Stage) -> list[tuple[str, int]]:
    """Return child and task of the claims, in order."""
    sent = stage.select(TeamMessageSent)
    return [(event.to, event.message.task) for event in sent if event.message.task]


def end(request: Request) -> Answer:
    return "the lead is done"


def work(request: Request) -> Answer:
    """Answer with the first line of the last prompt."""
    text = str(request.messages[-1].content[0])
    return f"report of {text[text.index('Task #') :].partition(':')[0]}" if "Task #" in text else ""


ALICE: Answer = [call("task", prompt="ALICE", agent="coder", name="alice")]


def make_script(*, child: Step = work, lead: Answer | Step = SPAWN) -> dict[str, Lines]:
    return {
        "PARENT": [lead, *[end] * 20],
        "ALICE": ["alice is ready", *[child] * 20],
        "BOB": ["bob is ready", *[child] * 20],
    }


async def test_idle_children_take_the_ready_tasks_that_are_for_their_agents(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("parse", [], ""), ("emit", [1], "coder"), ("test", [2], "tester"))
    report = await stage.run_checked(make_script(), agents=(CODER, TESTER))
    assert report.text == "the lead is done"
    assert list_tasks(path) == [(n, "completed", f"report of Task #{n}") for n in (1, 2, 3)]
    claims = list_claims(stage)
    assert claims[0][1] == 1 and claims[1:] == [("alice", 2), ("bob", 3)]
    request = stage.list_requests("BOB")[-1]
    text = str(request.messages[-1].content)
    assert "Task #3: test" in text and "report of Task #2" in text
    assert not {"task_update", "task_list"} & set(request.tools)
    briefs = [event.brief for event in stage.select(RunStarted)]
    assert [(b.name, b.board_task) for b in briefs if b.board_task] == claims
    assert briefs[-1].description == "Task #3: test"


async def test_a_task_that_is_added_later_wakes_an_idle_child(stage: Stage, path: Path) -> None:
    is_done = asyncio.Event()

    async def wait_for_claim(request: Request) -> Answer:
        add_tasks(path, ("late", [], ""))
        async with asyncio.timeout(60):
            await is_done.wait()
        return "go on"

    def finish(request: Request) -> Answer:
        is_done.set()
        return "late is done"

    script = make_script(child=finish)
    script["PARENT"] = [[call("task", prompt="ALICE", agent="coder")], wait_for_claim, *[end] * 5]
    await stage.run_checked(script, agents=(CODER,))
    assert list_tasks(path) == [(1, "completed", "late is done")]
    assert list_claims(stage) == [("coder", 1)], "an agent with claims has a name"


async def test_a_failed_task_is_returned_with_its_reason_and_not_tried_again_by_the_child(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("too much", [], ""), ("after it", [1], ""), ("another", [], ""))
    endless = replace(CODER, budget=Budget(turns=2))

    def child(request: Request) -> Answer:
        if "another" in str(request.messages):
            return "another is done"
        return [call("read", file_path="notes.txt")]

    await stage.run(make_script(child=child, lead=ALICE), agents=(endless,))
    first, second, third = list_tasks(path)
    assert first[:2] == (1, "pending") and first[2].startswith("Turn limit: ")
    assert second == (2, "pending", "") and third == (3, "completed", "another is done")
    assert list_claims(stage) == [("alice", 1), ("alice", 3)]


async def test_a_child_may_complete_its_task_or_give_it_back(stage: Stage, path: Path) -> None:
    add_tasks(path, ("one", [], ""), ("two", [], ""))
    coder = replace(CODER, tools=("task_update",))
    answers = [
        "alice is ready",
        [call("complete_task", task_id=1)],
        "one is done",
        [call("task_update", task_id=2, status="pending")],
        "I cannot do it",
    ]
    script = make_script(lead=ALICE) | {"ALICE": answers}
    await stage.run_checked(script, agents=(coder,))
    assert [task[:2] for task in list_tasks(path)] == [(1, "completed"), (2, "pending")]
    assert "To give it back" in str(stage.list_requests("ALICE")[1].messages[-1].content)


async def test_a_task_whose_files_cannot_be_merged_is_not_completed(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("change the notes", [], ""))

    def change(request: Request) -> Answer:
        (stage.folder / "notes.txt").write_text("of the user\n")
        return [call("write", file_path="notes.txt", content="of alice\n")]

    script = make_script(lead=ALICE) | {"ALICE": ["alice is ready", change, *["changed"] * 5]}
    options: dict[str, Any] = {"sandbox": "auto", "isolation": Isolation(max_returns=0)}
    await stage.run(script, agents=(ISOLATED,), **options)
    assert list_tasks(path) == [(1, "pending", "Done, but its files are not merged")]
    assert (stage.folder / "notes.txt").read_text() == "of the user\n"


async def test_a_task_whose_work_comes_back_is_completed_after_the_merge(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("change the notes", [], ""), ("then another", [1], ""))
    statuses: list[list[str]] = []

    def work(request: Request) -> Answer:
        statuses.append([status for _, status, _ in list_tasks(path)])
        text = str(request.messages[-1].content)
        if "Task #1" in text:
            (stage.folder / "notes.txt").write_text("of the user\n")
            return [call("write", file_path="notes.txt", content="of alice\n")]
        if "not merged" in text:
            return [call("write", file_path="notes.txt", content="of both\n")]
        return "done"

    script = make_script(lead=ALICE, child=work)
    await stage.run_checked(script, agents=(ISOLATED,), sandbox="auto")
    assert list_tasks(path) == [(1, "completed", "done"), (2, "completed", "done")]
    assert (stage.folder / "notes.txt").read_text() == "of both\n"
    assert statuses[2:4] == [["in_progress", "pending"]] * 2, "it waits for the merge"


async def test_a_prompt_wakes_no_idle_child_of_an_earlier_prompt(stage: Stage, path: Path) -> None:
    script = make_script(lead=ALICE) | {"NEXT": [end]}
    async with stage.open(script, agents=(CODER,)) as session:
        await session.run("PARENT")
        add_tasks(path, ("later", [], ""))
        await session.run("NEXT")
        assert list_claims(stage) == []
    assert list_tasks(path) == [(1, "pending", "")]


async def test_a_cancelled_prompt_returns_the_tasks_of_its_children(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("long", [], ""))

    async def wait(request: Request) -> Answer:
        await asyncio.Event().wait()
        return ""

    async with stage.open(make_script(child=wait, lead=ALICE), agents=(CODER,)) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: list_claims(stage) and stage.list_requests("ALICE")[1:])
        session.runs.cancel()
        await running
        with TaskBoard(path) as board:
            assert [task.status for task in board.read_tasks()] == ["pending"]


async def test_a_child_whose_budget_does_not_suffice_takes_no_task(
    stage: Stage, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_tasks(path, ("one", [], ""))
    await stage.run(make_script(lead=ALICE), agents=(CODER,), prompt_budget=Budget(children=1))
    assert list_tasks(path) == [(1, "pending", "")]
    assert "alice does not take task #1" in caplog.text


# Checks of tasks.

TASK_CHECK = "! grep bad code.txt"
"""The check of a task: it fails if the file has the word "bad"."""

OTHER_CHECK = "! grep good code.txt"
"""The check of the session, or of the agent. It fails with work that the task's check lets pass."""

TASK = ("write the code", list[int](), "")
COMMAND = "touch new.txt"
"""A check that is a command for which mudroom asks."""


def import_task(path: Path, folder: Path) -> None:
    """Import a task with the check COMMAND."""
    folder.mkdir()
    task = {"id": 1, "subject": "write the code", "metadata": {"check": COMMAND}}
    (folder / "task_1.json").write_text(json.dumps(task))
    with TaskBoard(path) as board:
        import_tasks(board, folder)


def list_checks(stage: Stage) -> list[tuple[str, bool]]:
    """Return the commands of the checks, and whether they succeeded."""
    finished = stage.select(CheckFinished)
    return [(event.command, event.is_green) for event in finished]


def write(text: str) -> Lines:
    """Return the answers of a child that writes the file and ends."""
    return [[call("write", file_path="code.txt", content=text)], "written"]


async def run_alice(stage: Stage, child: Lines, agent: Agent = ISOLATED, **options: Any) -> None:
    """Run a prompt in which alice takes the task; its record replays."""
    options = {"sandbox": "auto", "isolation": Isolation(max_returns=0), **options}
    script = make_script(lead=ALICE) | {"ALICE": ["alice is ready", *child]}
    await stage.run_checked(script, agents=(agent,), **options)


@pytest.mark.parametrize("is_of_agent", [True, False])
async def test_the_check_of_a_task_comes_before_those_of_agent_and_session(
    stage: Stage, path: Path, *, is_of_agent: bool
) -> None:
    add_tasks(path, TASK, check=TASK_CHECK)
    agent = replace(ISOLATED, check=OTHER_CHECK if is_of_agent else "")
    check = "" if is_of_agent else OTHER_CHECK
    await run_alice(stage, write("good\n"), agent, isolation=Isolation(check=check, max_returns=0))
    assert list_checks(stage) == [(TASK_CHECK, True)]
    assert list_tasks(path) == [(1, "completed", "written")]
    assert (stage.folder / "code.txt").read_text() == "good\n"


async def test_a_task_whose_check_fails_is_not_completed(stage: Stage, path: Path) -> None:
    add_tasks(path, TASK, check=TASK_CHECK)
    await run_alice(stage, write("bad\n"))
    assert list_checks(stage)[0] == (TASK_CHECK, False)
    assert list_tasks(path) == [(1, "pending", "Done, but its files are not merged")]
    assert not (stage.folder / "code.txt").exists()


async def test_a_task_is_completed_when_its_repaired_work_is_merged(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, TASK, check=TASK_CHECK)
    await run_alice(stage, [*write("bad\n"), *write("good\n")], isolation=Isolation(max_returns=1))
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
    await run_alice(stage, write("good\n"), permissions=rules)
    assert list_checks(stage) == ([(COMMAND, True)] if is_allowed else [])
    status = "completed" if is_allowed else "pending"
    assert [task[1] for task in list_tasks(path)] == [status]
    assert (stage.folder / "code.txt").exists() == is_allowed


async def test_the_check_that_the_user_gave_a_task_needs_no_confirmation(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, TASK, check=COMMAND)
    await run_alice(
        stage, write("good\n"), permissions=Permissions.of(allow=["Write"], ask=["Bash"])
    )
    assert list_checks(stage) == [(COMMAND, True)]
    assert list_tasks(path) == [(1, "completed", "written")]


async def test_a_run_does_not_change_the_check_of_a_task(stage: Stage, path: Path) -> None:
    add_tasks(path, TASK, check=TASK_CHECK)
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
    add_tasks(path, TASK, check=TASK_CHECK)
    agent = replace(ISOLATED, tools=("write", "task_update"))
    texts: list[str] = []

    def end(request: Request) -> Answer:
        texts.append(str(request.messages[-1].content))
        return "written"

    change = [
        call("write", file_path="code.txt", content="bad\n"),
        call("complete_task", task_id=1),
    ]
    await run_alice(stage, [change, end], agent)
    assert "task #1 has a check" in texts[0]
    assert [task[1] for task in list_tasks(path)] == ["pending"]


async def test_a_check_that_is_not_used_is_named(
    stage: Stage, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_tasks(path, TASK, check=TASK_CHECK)
    agent = replace(CODER, tools=("write",))
    with caplog.at_level(logging.WARNING, "mudroom"):
        await run_alice(stage, write("bad\n"), agent)
    assert "the check of task #1 is not used: alice has no isolated workspace" in caplog.text
    assert list_checks(stage) == []
    assert list_tasks(path) == [(1, "completed", "written")]
