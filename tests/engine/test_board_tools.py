"""The tools for the task board: exactly once, claims of runs, who has the tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Stage

from mudroom import Agent, Children
from mudroom._adapters.boards.board import TaskBoard, is_owner_alive
from mudroom._adapters.boards.file import get_board_path
from mudroom._adapters.boards.session_board import SessionBoard, delete_answers
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.agents import Mode
from mudroom._core.events import NoteInjected, SessionOpened
from mudroom._core.ports import Board
from mudroom._core.ports.board import TaskChange
from mudroom._engine.compaction.compactor import collect_facts, format_facts
from mudroom.errors import BoardError, UsageError
from mudroom.permissions.rules import Permissions

from ..worker_kinds import WORKERS

SESSION = "11111111-0000-4000-8000-000000000000"
OTHER_SESSION = "22222222-0000-4000-8000-000000000000"
CLAIM = TaskChange(status="in_progress")
COMPLETE = TaskChange(status="completed")
BOARD_TOOLS = {"task_create", "task_update", "task_list", "task_get"}


@pytest.fixture
def path(stage: Stage) -> Path:
    return get_board_path(stage.home, str(stage.folder.resolve()))


def list_lines(path: Path) -> list[tuple[int, str]]:
    with TaskBoard(path) as board:
        return [(task.id, task.status) for task in board.list_tasks()]


async def test_a_model_adds_claims_and_completes_tasks(stage: Stage, path: Path) -> None:
    answers: list[Answer] = [
        [
            call("task_create", subject="Setup project"),
            call("TaskCreate", subject="Write code", blockedBy=["1"], activeForm="Writing"),
            call("create_task", subject="Write tests", blockedBy=["#2"]),
        ],
        [call("claim_task", task_id=2), call("claim_task", task_id="task_1")],
        [call("complete_task", task_id=1), call("TaskList")],
        [call("TaskUpdate", taskId="2", status="in_progress", owner="alice"), call("list_tasks")],
        [call("task_get", task_id=3), call("task_list", status="completed")],
        "done",
    ]
    async with stage.open(answers, children=Children(board=True)) as session:
        await session.run("PARENT")
        texts = [result.text for result in stage.results]
        assert texts[:3] == [
            "added [ ] #1 Setup project",
            "added [ ] #2 Write code (waits for #1)",
            "added [ ] #3 Write tests (waits for #2)",
        ]
        assert "task #2 waits for #1" in texts[3] and stage.results[3].error
        assert texts[4].startswith(f"[>] #1 Setup project (session {session.id[:8]})")
        assert texts[5] == "#1 is completed; ready now: #2"
        assert texts[6].splitlines()[-1] == "(1/3 completed, 1 ready)"
        assert "[>] #2 Write code (alice)" in texts[8]
        assert "depends on: #2" in texts[9]
        assert texts[10].splitlines()[0] == "[x] #1 Setup project"
    assert list_lines(path) == [(1, "completed"), (2, "pending"), (3, "pending")]


async def test_wrong_calls_are_errors_and_change_nothing(stage: Stage, path: Path) -> None:
    answers: list[Answer] = [
        [
            call("task_create", subject="one"),
            call("task_create", subject="two", blocked_by=[1]),
            call("task_update", task_id=1, subject="new", add_blocked_by=[2]),
            call("task_update", task_id=7, status="completed"),
            call("task_update", task_id=1, status="blocked"),
            call("task_create", subject="three", metadata={"priority": "high"}),
        ],
        "done",
    ]
    await stage.run(answers, children=Children(board=True))
    errors = [result.text for result in stage.results if result.error]
    assert len(errors) == 4
    for part in (
        "cycle: #1 -> #2 -> #1",
        "no task #7",
        "expected one of completed, deleted, in_progress, pending",
        "metadata.priority of a task is a whole number",
    ):
        assert any(part in error for error in errors), part
    with TaskBoard(path) as board:
        assert [task.subject for task in board.list_tasks()] == ["one", "two"]


async def test_a_session_without_a_board_does_not_mention_it(stage: Stage, path: Path) -> None:
    await stage.run([[call("TaskList"), call("task_create", subject="x")], "done"])
    assert not BOARD_TOOLS & set(stage.model.requests[0].tools)
    assert "There is no tool 'task_create'" in stage.results[1].text
    assert "Nothing works in the background" in stage.results[0].text, "TaskList means wait"
    assert not path.exists()


async def test_only_an_agent_that_names_the_tools_has_them_without_the_option(
    stage: Stage, path: Path
) -> None:
    planner = Agent(name="planner", description="plans", tools=("task_create", "read"))
    other = Agent(name="other", description="works")
    script = {
        "PARENT": [[call("task", prompt=name, agent=name) for name in ("planner", "other")], "ok"],
        "planner": [[call("task_create", subject="one")], "ok"],
        "other": ["ok"],
    }
    await stage.run(script, agents=(planner, other))
    offered = {name: set(stage.list_requests(name)[0].tools) for name in script}
    assert offered["planner"] == {"task_create", "read"}
    assert not BOARD_TOOLS & (offered["PARENT"] | offered["other"])
    assert list_lines(path) == [(1, "pending")]


async def test_an_agent_gives_its_children_no_board_tools_that_its_own_list_lacks(
    stage: Stage, path: Path
) -> None:
    planner = Agent(name="planner", description="plans", tools=("task_create",))
    narrow = Agent(name="narrow", description="narrow", tools=("task", "read"), instructions="x")
    script = {
        "PARENT": [[call("task", prompt="planner", agent="planner")], "ok"],
        "planner": ["ok"],
    }
    await stage.run(script, agents=(planner,), agent=narrow)
    assert stage.list_requests("planner")[0].tools == ()
    assert not path.exists()


async def test_plan_mode_only_reads_the_board(stage: Stage, path: Path) -> None:
    with TaskBoard(path) as board:
        board.add("one")
    answers: list[Answer] = [
        [
            call("task_list"),
            call("task_get", task_id=1),
            call("task_create", subject="two"),
            call("task_update", task_id=1, status="completed"),
        ],
        "done",
    ]
    await stage.run(answers, children=Children(board=True), permissions=Permissions(mode=Mode.PLAN))
    assert [result.error for result in stage.results] == [False, False, True, True]
    assert all("plan mode" in result.text for result in stage.results[2:])
    assert list_lines(path) == [(1, "pending")]


@pytest.mark.parametrize("worker", WORKERS)
async def test_a_child_that_ends_returns_its_tasks_and_a_root_run_keeps_its_own(
    stage: Stage, path: Path, worker: str
) -> None:
    script = {
        "PARENT": [
            [call("task_create", subject=text) for text in ("one", "two", "three")],
            [call("claim_task", task_id=1), call("task", prompt="CHILD")],
            "first",
            [call("task_list"), call("complete_task", task_id=1)],
            "second",
        ],
        "CHILD": [
            [call("claim_task", task_id=2), call("complete_task", task_id=1)],
            [call("claim_task", task_id=3), call("complete_task", task_id=3)],
            "I give up.",
        ],
    }
    async with stage.open(script, children=Children(board=True), worker=worker) as session:
        await session.run("PARENT")
        await session.run("NEXT")
    lines = next(result.text for result in stage.results if "ready)" in result.text).splitlines()
    assert lines[0].startswith("[>] #1 one (session ")
    assert lines[1:3] == ["[ ] #2 two", "[x] #3 three"]
    assert list_lines(path) == [(1, "completed"), (2, "pending"), (3, "completed")]


async def test_a_run_cannot_end_the_task_of_another_child(stage: Stage, path: Path) -> None:
    board = SessionBoard(path, SESSION)
    other = SessionBoard(path, OTHER_SESSION)
    try:
        await board.create_task("a", "one")
        await board.update_task("b", "1.1.1", 1, CLAIM)
        for key, run, each in (("c", "1.1.2", board), ("d", "1", other)):
            for change in (CLAIM, COMPLETE, TaskChange(status="pending")):
                with pytest.raises(UsageError, match=r"run 1\.1\.1, session 11111111 works on"):
                    await each.update_task(f"{key}{change.status}", run, 1, change)
        answer = await board.update_task("e", "2", 1, COMPLETE)
        assert answer.task.status == "completed", "a root run may complete it"
    finally:
        await other.close()
        await board.close()


async def test_a_change_that_comes_again_gives_the_same_answer_once(path: Path) -> None:
    first = SessionBoard(path, SESSION)
    answers = [await first.create_task("1", "one"), await first.create_task("2", "two", "", [1])]
    answers.append(await first.update_task("3", "1", 1, CLAIM))
    answers.append(await first.update_task("4", "1", 1, COMPLETE))
    again = SessionBoard(path, SESSION, is_owner=False)
    assert answers == [
        await again.create_task("1", "one"),
        await again.create_task("2", "two", "", [1]),
        await again.update_task("3", "1", 1, CLAIM),
        await again.update_task("4", "1", 1, COMPLETE),
    ]
    assert answers[3].ready == (2,)
    assert [task.id for task in await again.list_tasks()] == [1, 2]
    await again.close()
    await first.close()


async def test_the_claims_of_worker_processes_have_a_lock_from_the_start(
    stage: Stage, path: Path
) -> None:
    planner = Agent(name="planner", description="plans", tools=("task_update",))
    async with stage.open(["ok"], agents=(planner,), worker="process:1") as session:
        assert is_owner_alive(path, session.id)
    assert not is_owner_alive(path, session.id)


async def test_a_model_gives_tasks_to_agents(stage: Stage, path: Path) -> None:
    tester = Agent(name="tester", description="Tests.")
    answers = {
        "PARENT": [
            [
                call("TaskCreate", subject="one", metadata={"agent": "tester", "x": 1}),
                call("TaskUpdate", taskId="1", status="in_progress"),
            ],
            [call("TaskUpdate", taskId="1", metadata={"x": None, "priority": 2})],
            [call("task", prompt="TEST", agent="tester")],
            "done",
        ],
        "TEST": [[call("claim_task", task_id=1), call("complete_task", task_id=1)], "tested"],
    }
    await stage.run(answers, children=Children(board=True), agents=(tester,))
    refused = next(result.text for result in stage.results if "only the agent" in result.text)
    assert refused.startswith("only the agent 'tester' may claim task #1")
    with TaskBoard(path) as board:
        task = board.get(1)
    assert (task.status, task.metadata) == ("completed", {"agent": "tester", "priority": 2})


async def test_the_answers_to_a_deleted_session_leave_all_boards(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for session in (SESSION, OTHER_SESSION):
        board = SessionBoard(path, session)
        await board.create_task(f"{session}#1#1.1", "one")
        await board.close()
    home = path.parent.parent
    path.with_name("damaged.db").write_bytes(b"no database at all" * 99)
    delete_answers(home, SESSION)
    delete_answers(home / "missing", SESSION)
    with TaskBoard(path) as board, board.change() as sql:
        assert sql.execute("SELECT key FROM op").fetchall() == [(f"{OTHER_SESSION}#1#1.1",)]
    assert [task_id for task_id, _ in list_lines(path)] == [1, 2], "the tasks stay"
    assert "damaged" in caplog.text


async def test_a_claim_that_was_lost_after_a_crash_is_not_confirmed_again(path: Path) -> None:
    board: Board = SessionBoard(path, SESSION)
    await board.create_task("1", "one")
    await board.update_task("2", "1", 1, CLAIM)
    await board.update_task("3", "1", 1, TaskChange(status="pending"))
    with TaskBoard(path) as other:
        other.claim(1, "bob")
        with pytest.raises(UsageError, match="bob works on task #1"):
            await board.update_task("2", "1", 1, CLAIM)


@pytest.mark.parametrize("fork", [False, True])
async def test_a_resumed_session_offers_the_recorded_board_to_all(
    stage: Stage, path: Path, *, fork: bool
) -> None:
    """The claims of a root run end with its process."""
    planner = Agent(name="planner", description="plans", tools=("task_update", "task_create"))
    steps: list[Answer] = [[call("task_create", subject="one"), call("claim_task", task_id=1)]]
    options: dict[str, Any] = {"journal": "sqlite", "agent": planner}
    async with stage.open([*steps, "ok"], children=Children(board=True), **options) as session:
        await session.run("PARENT")
        assert list_lines(path) == [(1, "in_progress")]
    assert list_lines(path) == [(1, "pending")]
    (record,) = (stage.home / "sessions").glob("*.db")
    opened = next(open_reader(record).read())
    assert isinstance(opened, SessionOpened) and opened.board == path.name
    options["agent"] = Agent(name="other", description="has all tools")
    async with stage.open(["ok"], resume=session.id, fork=fork, **options) as resumed:
        await resumed.run("NEXT")
        assert not any("task board" in notice for notice in map(str, resumed.notices))
    assert set(stage.model.requests[0].tools) >= BOARD_TOOLS


async def test_a_resume_with_the_board_of_another_project_says_so(stage: Stage, path: Path) -> None:
    async with stage.open(["ok"], children=Children(board=True), journal="sqlite") as session:
        await session.run("PARENT")
    (stage.folder.parent / ".git").mkdir()
    async with stage.open(["ok"], resume=session.id, journal="sqlite") as resumed:
        (notice,) = (each for each in map(str, resumed.notices) if "task board" in each)
    assert f"and used {path.name} before" in notice and notice.count(".db") == 2


@pytest.mark.parametrize("tools", [("task_list", "task"), ("TaskList", "agent")])
@pytest.mark.parametrize("fork", [False, True])
async def test_a_resumed_session_offers_the_board_only_to_agents_that_name_it(
    stage: Stage, tools: tuple[str, ...], *, fork: bool
) -> None:
    planner = Agent(name="planner", description="plans", tools=tools)
    worker = Agent(name="worker", description="works")
    agents = (planner, worker)
    async with stage.open(["ok"], agents=agents, agent=planner, journal="sqlite") as session:
        await session.run("PARENT")
    assert "task_list" in stage.model.requests[0].tools
    options: dict[str, Any] = {"agents": agents, "agent": worker, "journal": "sqlite"}
    script = [[call("task", prompt="WORK", agent="worker")], "child", "ok"]
    async with stage.open(script, resume=session.id, fork=fork, **options) as resumed:
        await resumed.run("NEXT")
    offered = [set(request.tools) & BOARD_TOOLS for request in stage.model.requests]
    assert offered == [set()] * 3


async def test_a_reminder_comes_after_ten_turns_with_a_task_in_progress(stage: Stage) -> None:
    def answer(request: Request) -> Answer:
        if request.turn == 0:
            return [call("task_create", subject="one"), call("claim_task", task_id=1)]
        if request.turn == 22:
            return [call("complete_task", task_id=1)]
        return (
            call("read", file_path="notes.txt", offset=request.turn) if request.turn < 40 else "ok"
        )

    report = await stage.run_checked(answer, children=Children(board=True))
    assert report.ok
    notes = [event for event in stage.select(NoteInjected) if "board" in event.text]
    assert [note.turn for note in notes] == [11, 21]
    assert "#1 of the task board" in notes[0].text


async def test_facts_of_a_compaction_list_the_tasks_that_a_run_works_on(stage: Stage) -> None:
    answers: list[Answer] = [
        [call("task_create", subject=text) for text in ("one", "two", "three")],
        [call("claim_task", task_id=1), call("claim_task", task_id=2)],
        [call("complete_task", task_id=2)],
        "ok",
    ]
    async with stage.open(answers, children=Children(board=True)) as session:
        await session.run("PARENT")
        events = await stage.check_record()
    facts = format_facts(collect_facts(events, {"1"}, ()))
    assert "## Tasks of the board that you work on\n- #1 one" in facts
    assert "#2 two" not in facts


async def test_a_board_that_cannot_be_opened_stops_the_start(stage: Stage, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 99)
    with pytest.raises(BoardError, match="damaged"):
        await stage.run(["ok"], children=Children(board=True))


async def test_a_board_of_the_first_version_is_used_further(path: Path) -> None:
    with TaskBoard(path) as board:
        board.add("one")
        with board.change() as sql:
            sql.execute("DROP INDEX task_order")
            for column in ("agent", "priority", "metadata", "run"):
                sql.execute(f"ALTER TABLE task DROP COLUMN {column}")
            sql.execute("DROP TABLE op")
            sql.execute("PRAGMA user_version = 1")
    board = SessionBoard(path, SESSION)
    await board.update_task("1", "1", 1, CLAIM)
    assert [task.status for task in await board.list_tasks()] == ["in_progress"]
    await board.close()
