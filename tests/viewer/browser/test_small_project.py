"""The viewer on the smallest project, where reports are longer than what children read."""

from __future__ import annotations

from pathlib import Path

from tests.workspaces.git_projects import make_repository

from mudroom import Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

from .conftest import Page
from .test_page import open_home, read_texts

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


async def record(project: Path, home: Path) -> str:
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
    session = await record(project, home)
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
