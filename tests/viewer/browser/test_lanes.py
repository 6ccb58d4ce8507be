"""Named children in the viewer: a lane per name, arrows for messages, whole contexts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.compaction.conftest import list_message_texts
from tests.viewer.browser.test_compaction import BLOCKS
from tests.viewer.sessions import SessionBuilder

from mudroom import Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

from .conftest import Page
from .test_page import open_page, read_selection, read_texts


def answer(request: Request) -> Answer:
    """Name two children; one writes to the other, and works again after a message."""
    if request.prompt.startswith("ALICE"):
        if request.turn == 0:
            return [call("send_message", to="bob", message="The door is green.")]
        return "The door is green." if request.turn == 1 else "The window is blue."
    if request.prompt.startswith("BOB"):
        return "Noted."
    if request.turn == 0:
        names = ("alice", "bob")
        return [call("task", prompt=f"{name.upper()} work", name=name) for name in names]
    if request.turn == 1:
        return [call("send_message", to="alice", message="And the window?")]
    return "All is known."


async def record_team(folder: Path) -> tuple[SessionBuilder, ScriptedModel]:
    folder.mkdir()
    journal = MemoryJournal()
    model = ScriptedModel(answer)
    options: dict[str, Any] = {"cwd": str(folder), "home": str(folder.parent / "home")}
    async with Session(**options, model=model, environ={}, journal=journal) as session:
        await session.run("PARENT")
    return SessionBuilder(session=session.id, events=list(journal.events)), model


async def test_the_runs_of_a_name_are_one_lane_with_arrows_for_messages(
    page: Page, tmp_path: Path
) -> None:
    script, model = await record_team(tmp_path / "work")
    (request,) = [
        request
        for request in model.requests
        if request.prompt.startswith("ALICE") and request.turn == 2
    ]
    expected = [text for message in request.messages for text in list_message_texts(message)]
    async with open_page(page, script, "&run=1"):
        lanes: list[str] = await page.run(
            "app.waterfall.shown.map(row => row.run.lane.map(run => runName(run)).join(' '))"
        )
        assert sorted(lanes) in (["alice alice", "bob", "main"], ["alice alice", "bob bob", "main"])
        names = await read_texts(page, ".row .first b")
        assert sorted(names) == ["alice", "bob", "main"]
        arrows = await page.run(
            "app.fold.messages.map(({ from, to }) => [app.waterfall.rowsById.has(from),"
            " runName(app.fold.runs.get(from)), runName(app.fold.runs.get(to))].slice(1))"
        )
        assert ["alice", "bob"] in arrows and ["main", "alice"] in arrows
        last = await page.run(
            "[...app.fold.runs.values()].findLast(run => run.name === 'alice').id"
        )
        assert await page.run(BLOCKS.format(run=last, turn=1)) == expected
        await page.run(f"app.navigate({{ run: '{last}', turn: 0, call: '' }})")
        await page.wait_until("document.querySelectorAll('.lane-links button').length === 2")
        assert await page.run("document.querySelector('.row.chosen').dataset.run") == last
        await page.click(".lane-links button")
        assert (await read_selection(page))[0] == "1.1.1"
        await page.press("ArrowLeft")
        assert (await read_selection(page))[0] == "1"
