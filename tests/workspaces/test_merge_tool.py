"""The tool merge: the parent decides what becomes of work that conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.git_projects import make_repository

from mudroom import Agent, Isolation, Report, Session, WorkspaceKind
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunStarted, StoredEvent, WorkMerged
from mudroom._replay import replay

PROMPT = "Start the children."
LINES = "a\nb\nc\n"
WRITER = Agent(name="writer", description="Writes.", workspace=WorkspaceKind.ISOLATED)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", {"a.txt": LINES, "b.txt": "b\n"})


async def run_merge(
    project: Path,
    parent: Sequence[Answer],
    *,
    name: str = "",
    after: Sequence[Answer] = (),
    **options: Any,
) -> tuple[Report, ScriptedModel, list[StoredEvent]]:
    """Run a child whose work conflicts with an edit of the parent, and the parent's answers.

    Arguments:
        name: of the child. after: answers of the child when it has its work back.
    """
    begun, changed = (project.parent / name for name in ("begun", "changed"))
    wait = f"touch {begun}; while [ ! -e {changed} ]; do sleep 0.02; done"
    child: list[Answer] = [
        [call("bash", command=wait)],
        [call("bash", command="sed -i 's/^b$/child/' a.txt; echo new > new.txt")],
        "Done.",
        *after,
    ]
    edit = f"sed -i 's/^b$/parent/' {project}/a.txt; touch {changed}"
    change = f"while [ ! -e {begun} ]; do sleep 0.02; done; {edit}"
    first = [
        call("task", prompt="child", agent="writer", **({"name": name} if name else {})),
        call("task", prompt="change"),
    ]

    def choose_answer(request: Request) -> Answer:
        if request.prompt == "child":
            return child[request.turn]
        if request.prompt == "change":
            return [[call("bash", command=change)], "Changed."][request.turn]
        return [first, *parent, "Ended.", "Ended."][request.turn]

    journal = MemoryJournal()
    settings: dict[str, Any] = {
        "journal": journal,
        "environ": {},
        "home": str(project.parent / "home"),
        "sandbox": "off",
        "agents": [WRITER],
        "isolation": Isolation(max_returns=0),
        **options,
    }
    model = ScriptedModel(choose_answer)
    async with Session(model=model, cwd=str(project), **settings) as session:
        report = await session.run(PROMPT)
    events = [event async for event in journal.read()]
    await replay(events)
    return report, model, events


def get_result(model: ScriptedModel) -> str:
    """Return the result of the parent's last call."""
    requests = [each for each in model.requests if each.prompt == PROMPT and each.results]
    return requests[-1].results[-1].text


def read_project(project: Path) -> tuple[str, bool]:
    """Return the text of the file in conflict, and whether the other file landed."""
    return (project / "a.txt").read_text(), (project / "new.txt").exists()


async def test_clean_merges_all_but_the_files_in_conflict(project: Path) -> None:
    report, model, _ = await run_merge(project, [[call("merge", run="1.1.1", how="clean")]])
    assert read_project(project) == ("a\nparent\nc\n", True)
    assert "are in your files now: new.txt]" in get_result(model)
    assert report.ok
    assert "new.txt" in report.files_changed


@pytest.mark.parametrize(("side", "line"), [("child", "child"), ("parent", "parent")])
async def test_side_takes_the_version_of_a_side(project: Path, side: str, line: str) -> None:
    merge = call("merge", run="1.1.1", how="side", side=side, paths=["a.txt"])
    await run_merge(project, [[merge]])
    assert read_project(project) == (f"a\n{line}\nc\n", True)


async def test_side_of_another_path_leaves_the_conflict(project: Path) -> None:
    merge = call("merge", run="1.1.1", how="side", side="child", paths=["b.txt"])
    _, model, _ = await run_merge(project, [[merge]])
    assert read_project(project) == ("a\nparent\nc\n", False)
    assert "not done, 1 conflict" in get_result(model)
    assert "Decide with merge." in get_result(model)


async def test_retry_merges_after_the_parent_changed_its_file(project: Path) -> None:
    change = call("bash", command="sed -i 's/^parent$/b/' a.txt")
    await run_merge(project, [[change], [call("merge", run="1.1.1", how="retry")]])
    assert read_project(project) == ("a\nchild\nc\n", True)


async def test_drop_merges_nothing_and_keeps_the_work(project: Path) -> None:
    calls: list[Answer] = [
        [call("merge", run="1.1.1", how="drop")],
        [call("merge", run="1.1.1", how="retry")],
    ]
    _, model, events = await run_merge(project, calls)
    assert read_project(project) == ("a\nparent\nc\n", False)
    assert "No work of '1.1.1' waits to be merged" in get_result(model)
    states = [event.state for event in events if isinstance(event, WorkMerged)]
    assert states == ["conflict", "dropped"]
    store = next((project.parent / "home/isolated").iterdir())
    assert list(store.rglob("1.1.1")), "the work is kept"


@pytest.mark.parametrize("name", ["", "alice"])
async def test_return_gives_the_child_its_work_back(project: Path, name: str) -> None:
    resolve = [call("bash", command="sed -i '/^<<<<<<< /,/^>>>>>>> /c\\both' a.txt")]
    merge = call("merge", run=name or "1.1.1", how="return")
    report, model, events = await run_merge(
        project, [[merge]], name=name, after=[resolve, "Resolved."]
    )
    assert report.ok
    assert read_project(project) == ("a\nboth\nc\n", True)
    assert get_result(model).startswith("Resolved.")
    briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    assert briefs["1.2.1"].continues == "1.1.1"
    assert briefs["1.2.1"].name == name


async def test_a_session_without_isolated_children_does_not_offer_the_tool(project: Path) -> None:
    model = ScriptedModel(lambda request: "Hello.")
    home = str(project.parent / "home")
    options: dict[str, Any] = {"journal": "memory", "environ": {}, "home": home}
    async with Session(model=model, cwd=str(project), **options) as session:
        await session.run("Hello")
    async with Session(
        model=model, cwd=str(project), isolation=Isolation(each_child=True), **options
    ) as session:
        await session.run("Hello")
    assert "merge" not in model.requests[0].tools
    assert "merge" in model.requests[1].tools
