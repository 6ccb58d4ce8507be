"""The tab of the viewer with the changes of isolated children, and the smallest project."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository

from mudroom import Isolation, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._cli.main import run

from .conftest import Page
from .test_page import open_home, read_texts

SECRET = "sk-ant-" + "a1B2" * 12


async def record(project: Path, home: Path) -> str:
    """Record an isolated child whose file the user changes meanwhile; return the session's id."""

    def answer(request: Request) -> Answer:
        if request.prompt != "CHILD":
            task = call("task", prompt="CHILD", isolation="isolated")
            return "All is done." if request.turn else [task]
        if request.turn:
            return "Changed."
        files = f"echo child > a.txt; echo '<b>{SECRET}</b>' > new.html; rm old.txt"
        return [call("bash", command=f"{files}; echo user > {project}/a.txt")]

    model = ScriptedModel(answer)
    options = {"cwd": str(project), "home": str(home), "sandbox": "off"}
    async with Session(model=model, environ={}, **options) as session:  # pyright: ignore
        await session.run("PARENT")
        return session.id


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", {"a.txt": "before\n", "old.txt": "old\n"})


async def check_tab(page: Page) -> None:
    """Check the tab with the changes of the child, on a page that shows the child."""
    await page.wait_until("app.isLoaded && app.run")
    assert "Changes" in await read_texts(page, "#tabs button")
    await page.press("5")
    await page.wait_until("document.querySelectorAll('.version pre').length === 4")
    assert (await read_texts(page, ".note b"))[0] == "conflict in 1 file"
    assert await read_texts(page, ".version h3") == [
        "before both",
        "the parent's",
        "the child's",
        "both, with conflict marks",
    ]
    base, ours, theirs, both = await read_texts(page, ".version pre")
    assert (base, ours, theirs) == ("before", "user", "child")
    assert "<<<<<<<" in both and "user" in both and "child" in both
    shown = await page.run("document.getElementById('body').textContent")
    for text in ("a.txt", "new.html", "added", "old.txt", "deleted"):
        assert text in shown


REQUEST_BEFORE_THE_MERGE = """(() => {
  const run = app.fold.runs.get("1.1.1");
  window.merge = run.merge;
  const answer = window.fetch;
  window.fetch = (...words) =>
    new Promise((done) => (window.release = () => done(answer(...words))));
  Object.assign(run, { merge: undefined, workOf: undefined, workPage: undefined });
  run.version++;
  app.draw();
  window.fetch = answer;
})()"""
"""Show the changes as while the run had ended, but its merge had not; the answer is held back."""

MERGE = """(() => {
  const run = app.fold.runs.get("1.1.1");
  run.merge = window.merge;
  run.version++;
  app.draw();
})()"""


async def test_the_changes_of_a_child_and_the_sides_of_a_conflict_are_shown(
    page: Page, project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    session = await record(project, home)
    async with open_home(page, home, f"#session={session}&run=1.1.1") as url:
        await check_tab(page)
        assert f"<b>{SECRET}</b>" in await page.run("document.getElementById('body').textContent")
        await page.run(REQUEST_BEFORE_THE_MERGE)
        await page.wait_until("document.querySelectorAll('.version pre').length === 0")
        await page.run(MERGE)
        await page.wait_until("document.querySelectorAll('.version pre').length === 4")
        await page.run("window.release()")
        await page.run("fetch(location.href).then(() => app.draw())")
        hidden = "an answer from before the merge hides the conflict"
        assert await page.run("document.querySelectorAll('.version pre').length") == 4, hidden
        await page.open(f"{url}#session={session}&run=1&tab=work")
        await page.wait_until("document.querySelectorAll('.version pre').length === 4")
        # The run that got the work back after the conflict shows it, not the one before as well.
        (name,) = await read_texts(page, ".changer b")
        assert name.startswith("general")
        path = json.dumps(f"api/sessions/{session}/work?base=--output=x&tree=HEAD")
        assert await page.run(f"fetch({path}).then(reply => reply.status)") == 404
        page.errors.clear()  # the browser logs the answer 404


async def test_an_exported_page_contains_the_changes_without_secrets(
    page: Page, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    session = await record(project, home)
    monkeypatch.setenv("MUDROOM_HOME", str(home))
    monkeypatch.chdir(project)
    target = tmp_path / "page.html"
    assert await asyncio.to_thread(run, ["view", session, "--export", str(target)]) == 0
    assert SECRET not in target.read_text()
    await page.open(f"{target.as_uri()}#run=1.1.1")
    await check_tab(page)


async def test_checks_are_in_the_transcript_and_returned_work_has_the_title_of_its_child(
    page: Page, project: Path, tmp_path: Path
) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt.startswith("PARENT"):
            names = ("write one", "write two")
            tasks = [call("task", prompt=f"Please {name}.", description="write") for name in names]
            return "All is done." if request.turn else tasks
        if "one" not in request.prompt or request.turn % 2:
            return "Changed."
        return [call("bash", command="echo bad > one.txt" if not request.turn else "rm one.txt")]

    home = tmp_path / "home"
    async with Session(
        model=ScriptedModel(answer),
        cwd=str(project),
        home=str(home),
        environ={},
        isolation=Isolation(each_child=True, check="echo looked; test ! -e one.txt"),
    ) as session:
        await session.run("PARENT")
    async with open_home(page, home, f"#session={session.id}&run=1"):
        await page.wait_until("app.isLoaded && app.run")
        checks = "[...app.fold.runs.get('1').items].filter((item) => item.kind === 'check')"
        texts: list[str] = await page.run(
            f"{checks}.map((item) => ITEM_RENDERERS.check(item).textContent)"
        )
        red = [text for text in texts if ": exit code 1, " in text]
        start = "check echo looked; test ! -e one.txt with the work of "
        assert red and all(text.startswith(start) and text.endswith("looked") for text in red)
        assert all("1.1.1" in text for text in red)
        assert any(": succeeded, " in text for text in texts)
        ends: list[bool] = await page.run(
            f"{checks}.map((item) => item.span.to >= item.span.from && item.span.kind === 'check')"
        )
        assert ends == [True] * len(texts)
        titles: dict[str, str] = await page.run(
            "Object.fromEntries([...app.fold.runs].map(([id, run]) => "
            "[id, distinctTitle(app.fold, run)]))"
        )
        assert titles == {
            "1": "PARENT",
            "1.1.1": "write: one.",
            "1.1.2": "write: two.",
            "1.1.1~2": "write: one.",
        }


REPORT = "该文件只有一行。It has one line, and nothing more is to be said of it. " * 12
OVERLAPS = """(() => {
  const areas = [...document.querySelectorAll("svg.growth text:not(.end)")]
    .map((each) => [each.textContent, each.getBoundingClientRect()]);
  return areas.flatMap(([first, a], n) => areas.slice(n + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom - 3
      && b.top < a.bottom - 3)
    .map(([second]) => `${first} / ${second}`));
})()"""
WIDE_BARS = """[...document.querySelectorAll(".bars i")].filter((bar) =>
  bar.getBoundingClientRect().right > bar.parentNode.getBoundingClientRect().right + 1).length"""


async def record_small(project: Path, home: Path) -> str:
    def answer(request: Request) -> Answer:
        if not request.prompt.startswith("CHILD"):
            tasks = [
                call("task", prompt=f"CHILD {n}", isolation="isolated" if n == 2 else "")
                for n in (1, 2, 3)
            ]
            return "All is done." if request.turn else tasks
        if request.turn:
            return REPORT
        if request.prompt == "CHILD 2":
            return [call("write", file_path="new2.py", content="x = 2\n")]
        return [call("read", file_path="a.txt")]

    model = ScriptedModel(answer)
    options = {"cwd": str(project), "home": str(home), "sandbox": "off"}
    async with Session(model=model, environ={}, **options) as session:  # pyright: ignore
        await session.run("PARENT")
        return session.id


async def test_figures_of_a_small_project_fit_the_page_and_children_show_their_changes(
    page: Page, tmp_path: Path
) -> None:
    project = make_repository(tmp_path / "project", {"a.txt": "one line\n"})
    home = tmp_path / "home"
    session = await record_small(project, home)
    async with open_home(page, home) as url:
        for width in (360, 800, 1600):
            await page.set_size(width, 900, phone=width == 360)
            await page.open(f"{url}#session={session}&run=1&tab=ledger")
            await page.wait_until("document.querySelectorAll('.bars').length === 3")
            assert await page.run(WIDE_BARS) == 0
            assert await page.run(OVERLAPS) == []
            assert await page.run("document.documentElement.scrollWidth") <= width
        assert "less" in (await read_texts(page, ".claim.parent em"))[0]
        await page.open(f"{url}#session={session}&run=1&tab=work")
        await page.wait_until("document.querySelectorAll('.changer').length === 1")
        await page.wait_until("document.body.textContent.includes('x = 2')")
        assert (await read_texts(page, ".changer b"))[0].startswith("general")
        assert "merged 1 file" in await read_texts(page, ".note b")
        row = "document.getElementById('row-1.1.{}').textContent"
        marked = ["merged 1 file" in await page.run(row.format(n)) for n in (1, 2, 3)]
        assert marked == [False, True, False]
        places = "['1.1.10', '1.1.2~2', '1.1.2', '1.2.1'].map((id) => ({id}))"
        ordered = await page.run(f"{places}.sort(comparePlaces).map((run) => run.id)")
        assert ordered == ["1.1.2", "1.1.2~2", "1.1.10", "1.2.1"]
