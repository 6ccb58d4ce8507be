"""A session whose project was moved or copied goes on where `cwd` says."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.records import read_record
from tests.session.conftest import list_texts, pause_during

from mudroom import Isolation, Session, UsageError
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workspaces.isolated.kept_work import list_kept
from mudroom._replay import replay
from mudroom.permissions import Permissions, Rule, Verdict


def open_session(project: Path, model: ScriptedModel, **options: Any) -> Session:
    home = str(project.parent / "home")
    return Session(model=model, cwd=str(project), home=home, sandbox="off", **options)


def make_project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("old\n")
    return project


def count_told(request: Request, old: Path, new: Path) -> int:
    text = f"The project has moved from {old} to {new}."
    return sum(text in each for each in list_texts(request))


def move(project: Path, how: str) -> Path:
    new = project.parent / "new"
    if how == "copied":
        shutil.copytree(project, new)
    else:
        project.rename(new)
    return new


def work(request: Request) -> Answer:
    if request.results:
        return "written"
    prompts = {"ONE", "TWO", "THREE", "FOUR"}.intersection(list_texts(request))
    if prompts == {"ONE", "TWO"}:
        return call("write", file_path="b.txt", content="new\n")
    return "ready"


@pytest.mark.parametrize("how", ["moved", "copied"])
@pytest.mark.parametrize("fork", [False, True])
async def test_the_conversation_goes_on_in_the_new_folder(
    tmp_path: Path, how: str, fork: bool
) -> None:
    project = make_project(tmp_path)
    model = ScriptedModel(work)
    async with open_session(project, model) as first:
        await first.run("ONE")
    new = move(project, how)
    async with open_session(new, model, resume=first.id, fork=fork) as session:
        assert session.cwd == str(new)
        assert any(str(project) in each and str(new) in each for each in map(str, session.notices))
        assert (await session.run("TWO")).text == "written"
        await session.run("THREE")
    assert (new / "b.txt").read_text() == "new\n"
    assert not (project / "b.txt").exists()
    assert [count_told(request, project, new) for request in model.requests] == [0, 1, 1, 1]
    assert str(new) in model.requests[-1].system and str(project) not in model.requests[-1].system

    # From now on it belongs to the new folder, and nobody is told again.
    store = SqliteStore(tmp_path / "home")
    assert (await store.read_header(session.id)).folder == str(new)
    async with Session(
        model=model, home=str(tmp_path / "home"), sandbox="off", resume=session.id
    ) as again:
        assert again.cwd == str(new)
        assert not any("before" in each for each in map(str, again.notices))
        await again.run("FOUR")
    assert count_told(model.requests[-1], project, new) == 1
    await replay(read_record(tmp_path / "home", session.id))


async def test_without_a_new_folder_a_session_whose_folder_is_gone_says_what_to_do(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    async with open_session(project, ScriptedModel(["ready"])) as first:
        await first.run("ONE")
    move(project, "moved")
    resumed = Session(model=ScriptedModel([]), home=str(tmp_path / "home"), resume=first.id)
    with pytest.raises(UsageError, match="does not exist") as caught:
        await resumed.__aenter__()
    assert caught.value.where == str(project) and "cwd" in caught.value.remedy


async def move_while_it_waits(
    project: Path,
    answer: Callable[[Request], Awaitable[Answer]],
    waiting: asyncio.Event,
    **options: Any,
) -> tuple[Path, str]:
    """Pause a session whose child waits, move its project and resume it; return folder and id."""
    async with open_session(project, ScriptedModel(answer), **options) as first:
        await pause_during(first, first.run("ROOT"), waiting)
    new = move(project, "moved")
    async with open_session(new, ScriptedModel(answer), resume=first.id) as session:
        report = await session.resume_unfinished()
    assert report and report.ok
    return new, first.id


@pytest.mark.parametrize("worker", ["local", "process:1"])
async def test_children_that_were_running_go_on_in_the_new_folder(
    tmp_path: Path, worker: str
) -> None:
    project = make_project(tmp_path)
    waiting = asyncio.Event()
    told: dict[str, int] = {}
    moved = Path(tmp_path, "new")

    async def answer(request: Request) -> Answer:
        told[request.prompt] = count_told(request, project, moved)
        if request.prompt == "ROOT":
            return "done" if request.turn else [call("task", prompt="CHILD", agent="general")]
        if request.turn == 0:
            return call("read", file_path="a.txt")
        if request.turn == 1 and not moved.exists():
            waiting.set()
            await asyncio.sleep(60)
        if request.turn == 1:
            return call("write", file_path="b.txt", content="by the child\n")
        return "written"

    new, session = await move_while_it_waits(project, answer, waiting, worker=worker)
    assert (new / "b.txt").read_text() == "by the child\n" and not project.exists()
    assert told == {"ROOT": 1, "CHILD": 1}
    await replay(read_record(tmp_path / "home", session))


async def test_isolated_work_of_a_moved_project_is_merged_into_the_new_folder(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    waiting = asyncio.Event()
    moved = Path(tmp_path, "new")

    async def answer(request: Request) -> Answer:
        if request.prompt == "ROOT":
            if request.turn:
                return "done"
            return [call("task", prompt="CHILD", agent="general")]
        if request.turn == 0:
            return call("write", file_path="a.txt", content="of the child\n")
        if not moved.exists():
            waiting.set()
            await asyncio.sleep(60)
        return "written"

    new, _ = await move_while_it_waits(
        project, answer, waiting, isolation=Isolation(each_child=True)
    )
    assert (new / "a.txt").read_text() == "of the child\n" and not project.exists()
    kept = list_kept(str(tmp_path / "home"))
    assert [each.source for each in kept] == [str(new)]


async def test_rules_about_the_old_folder_hold_for_the_new_one(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    rule = Rule(Verdict.DENY, "write", "/b.txt", base=str(project))
    model = ScriptedModel(work)
    async with open_session(project, model, permissions=Permissions(rules=(rule,))) as first:
        await first.run("ONE")
    new = move(project, "moved")
    async with open_session(new, model, resume=first.id) as session:
        await session.run("TWO")
    assert not (new / "b.txt").exists()
