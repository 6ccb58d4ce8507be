"""Tasks of the board that idle named children take by themselves (agent key `claims`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.engine.conftest import Lines, Stage, Step

from mudroom import Agent, Budget, Isolation, WorkspaceKind
from mudroom._adapters.boards.board import TaskBoard
from mudroom._adapters.boards.file import get_board_path
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom.events import RunStarted, TeamMessageSent

CODER = Agent(name="coder", description="Codes.", claims_tasks=True, tools=("read", "write"))
TESTER = Agent(name="tester", description="Tests.", claims_tasks=True, tools=("read",))
SPAWN = [
    call("task", prompt="ALICE", agent="coder", name="alice", background=True),
    call("task", prompt="BOB", agent="tester", name="bob", background=True),
]


@pytest.fixture
def path(stage: Stage) -> Path:
    return get_board_path(stage.home, str(stage.folder.resolve()))


def add_tasks(path: Path, *tasks: tuple[str, list[int], str]) -> None:
    """Add tasks: subject, ids of the tasks before, agent."""
    with TaskBoard(path) as board:
        for subject, blockers, agent in tasks:
            board.add(subject, blockers=blockers, metadata={"agent": agent or None})


def list_tasks(path: Path) -> list[tuple[int, str, str]]:
    """Return id, status and report of the tasks."""
    with TaskBoard(path) as board:
        return [(task.id, task.status, task.report) for task in board.list_tasks()]


def list_claims(stage: Stage) -> list[tuple[str, int]]:
    """Return child and task of the claims, in order."""
    sent = [event for event in stage.events if isinstance(event, TeamMessageSent)]
    return [(event.to, event.message.task) for event in sent if event.message.task]


def end(request: Request) -> Answer:
    return "the lead is done"


def work(request: Request) -> Answer:
    """Answer with the first line of the last prompt."""
    text = str(request.messages[-1].content[0])
    return f"report of {text[text.index('Task #') :].partition(':')[0]}" if "Task #" in text else ""


def make_script(*, child: Step = work, lead: Lines | None = None) -> dict[str, Lines]:
    return {
        "PARENT": lead or [SPAWN, *[end] * 20],
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
    briefs = [event.brief for event in stage.events if isinstance(event, RunStarted)]
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

    lead = [
        [call("task", prompt="ALICE", agent="coder")],
        wait_for_claim,
        *[end] * 5,
    ]
    script = make_script(child=finish, lead=lead)
    await stage.run_checked(script, agents=(CODER,))
    assert list_tasks(path) == [(1, "completed", "late is done")]
    assert list_claims(stage) == [("coder", 1)], "an agent with claims has a name"


async def test_a_failed_task_is_returned_with_its_reason_and_not_tried_again_by_the_child(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("too much", [], ""), ("after it", [1], ""), ("another", [], ""))
    endless = CODER.__class__(
        name="coder", claims_tasks=True, tools=("read",), budget=Budget(turns=2)
    )

    def child(request: Request) -> Answer:
        if "another" in str(request.messages):
            return "another is done"
        return [call("read", file_path="notes.txt")]

    lead = [[call("task", prompt="ALICE", agent="coder", name="alice")], *[end] * 5]
    await stage.run(make_script(child=child, lead=lead), agents=(endless,))
    first, second, third = list_tasks(path)
    assert first[:2] == (1, "pending") and first[2].startswith("Turn limit: ")
    assert second == (2, "pending", "") and third == (3, "completed", "another is done")
    assert list_claims(stage) == [("alice", 1), ("alice", 3)]


async def test_a_child_may_complete_its_task_or_give_it_back(stage: Stage, path: Path) -> None:
    add_tasks(path, ("one", [], ""), ("two", [], ""))
    coder = Agent(name="coder", claims_tasks=True, tools=("task_update",))
    answers = [
        "alice is ready",
        [call("complete_task", task_id=1)],
        "one is done",
        [call("task_update", task_id=2, status="pending")],
        "I cannot do it",
    ]
    lead = [[call("task", prompt="ALICE", agent="coder", name="alice")], *[end] * 5]
    script = make_script(lead=lead) | {"ALICE": answers}
    await stage.run_checked(script, agents=(coder,))
    assert [task[:2] for task in list_tasks(path)] == [(1, "completed"), (2, "pending")]
    assert "To give it back" in str(stage.list_requests("ALICE")[1].messages[-1].content)


async def test_a_task_whose_files_cannot_be_merged_is_not_completed(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("change the notes", [], ""))
    coder = Agent(
        name="coder", claims_tasks=True, tools=("write",), workspace=WorkspaceKind.ISOLATED
    )

    def change(request: Request) -> Answer:
        (stage.folder / "notes.txt").write_text("of the user\n")
        return [call("write", file_path="notes.txt", content="of alice\n")]

    script = make_script(
        lead=[[call("task", prompt="ALICE", agent="coder", name="alice")], *[end] * 5]
    ) | {"ALICE": ["alice is ready", change, *["changed"] * 5]}
    await stage.run(script, agents=(coder,), sandbox="auto", isolation=Isolation(max_returns=0))
    assert list_tasks(path) == [(1, "pending", "Done, but its files are not merged")]
    assert (stage.folder / "notes.txt").read_text() == "of the user\n"


async def test_a_task_whose_work_comes_back_is_completed_after_the_merge(
    stage: Stage, path: Path
) -> None:
    add_tasks(path, ("change the notes", [], ""), ("then another", [1], ""))
    coder = Agent(
        name="coder", claims_tasks=True, tools=("write",), workspace=WorkspaceKind.ISOLATED
    )
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

    lead = [[call("task", prompt="ALICE", agent="coder", name="alice")], *[end] * 5]
    script = make_script(lead=lead, child=work)
    await stage.run_checked(script, agents=(coder,), sandbox="auto")
    assert list_tasks(path) == [(1, "completed", "done"), (2, "completed", "done")]
    assert (stage.folder / "notes.txt").read_text() == "of both\n"
    assert statuses[2:4] == [["in_progress", "pending"]] * 2, "it waits for the merge"


async def test_a_prompt_wakes_no_idle_child_of_an_earlier_prompt(stage: Stage, path: Path) -> None:
    script = make_script() | {"NEXT": [end]}
    lead = [[call("task", prompt="ALICE", agent="coder", name="alice")], end, end, end]
    script["PARENT"] = lead
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

    lead = [[call("task", prompt="ALICE", agent="coder", name="alice")], *[end] * 5]
    async with stage.open(make_script(child=wait, lead=lead), agents=(CODER,)) as session:
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
    lead = [[call("task", prompt="ALICE", agent="coder", name="alice")], *[end] * 5]
    script = make_script(lead=lead)
    await stage.run(script, agents=(CODER,), prompt_budget=Budget(children=1))
    assert list_tasks(path) == [(1, "pending", "")]
    assert "alice does not take task #1" in caplog.text
