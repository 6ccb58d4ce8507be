"""Named children in the viewer: states as the terminal shows them, messages, a lane per name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.compaction.conftest import list_message_texts
from tests.viewer.sessions import SessionBuilder

from mudroom import Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import TeamMessageSent
from mudroom._projections.run_tree import RunTree, describe_state, list_teammates

from .conftest import Page
from .test_complete_context import BLOCKS
from .test_page import open_page, read_selection, read_texts

TEXT = "The window is blue.\nIt is open."


def name_four(request: Request) -> Answer:
    """Name four children; one plans, one is stopped, one gets a message that it does not read."""
    if not request.prompt.startswith("PROMPT"):
        return "done"
    texts = [text for message in request.messages for text in list_message_texts(message)]
    prompt = next(text for text in reversed(texts) if text.startswith("PROMPT"))
    last = str(request.messages[-1])
    if "PROMPT" not in last:
        return "the end"
    if prompt == "PROMPT one":
        return [call("task", prompt=f"work of {name}", name=name) for name in ("alice", "bob")] + [
            call("task", prompt="a plan", name="carol", plan=True)
        ]
    if prompt == "PROMPT two":
        return [
            call("task_stop", to="bob"),
            call("task", prompt="a new one", name="alice"),
            call("send_message", to="carol", message=TEXT, approve=True),
        ]
    return [call("send_message", to="alice", message=TEXT), call("task_stop", to="carol")]


async def record(folder: Path, *, is_rewound: bool = False, message: str = "") -> SessionBuilder:
    """Record two prompts.

    Arguments:
        is_rewound: replace the second prompt. message: text to alice in place of that prompt.
    """
    folder.mkdir()
    journal = MemoryJournal()
    options: dict[str, Any] = {"cwd": str(folder), "home": str(folder.parent / "home")}
    model = ScriptedModel(name_four)
    async with Session(**options, model=model, environ={}, journal=journal) as session:
        await session.run("PROMPT one")
        if message:
            assert await session.runs.send_durably("alice", message)
            return SessionBuilder(session=session.id, events=list(journal.events))
        removed = await session.run("PROMPT two")
        if is_rewound:
            session.rewind(removed.run_id)
            await session.run("PROMPT three")
    return SessionBuilder(session=session.id, events=list(journal.events))


async def check_states(page: Page, script: SessionBuilder) -> None:
    tree = RunTree.from_events(script.events)
    expected = [[mate.name, mate.first_run, describe_state(mate)] for mate in list_teammates(tree)]
    assert len(expected) > 1
    states = "computeTeam(app.fold).map(mate => [mate.name, mate.first.id, describeMate(mate)])"
    assert await page.run(states) == expected
    labels = "Object.fromEntries([...app.fold.runs].map(([id, run]) => [id, run.number]))"
    assert await page.run(labels) == {run.run_id: run.number for run in tree.walk()}


@pytest.mark.parametrize("session", ["two prompts", "messages"])
async def test_states_runs_and_unread_messages_are_those_of_python(
    page: Page, tmp_path: Path, session: str
) -> None:
    if session == "messages":
        script, _ = await record_team(tmp_path / "work")
    else:
        script = await record(tmp_path / "work")
    async with open_page(page, script):
        await check_states(page, script)


async def test_the_team_is_listed_and_its_messages_open(page: Page, tmp_path: Path) -> None:
    script = await record(tmp_path / "work", is_rewound=True)
    async with open_page(page, script):
        await check_states(page, script)
        names = await read_texts(page, ".team .line b")
        assert names == ["alice", "bob", "carol"]
        states = await read_texts(page, ".team .line span")
        assert states[0] == "general · idle, 2 runs, 0 unread"
        summaries = await read_texts(page, ".team-message summary")
        assert any("→ alice 1.1.1: The window is blue. It is open." in text for text in summaries)
        await page.run("document.querySelector('.team-message summary').click()")
        await page.wait_until("document.querySelector('.team-message[open]')")
        shown = await page.run(
            "document.querySelector('.team-message[open] .team-text').textContent"
        )
        assert shown == TEXT
        await page.run("app.draw()")
        assert await page.run("document.querySelectorAll('.team-message[open]').length") == 1


async def test_a_message_between_two_prompts_is_shown_as_unread(page: Page, tmp_path: Path) -> None:
    script = await record(tmp_path / "work", message=TEXT)
    (sent,) = (event for event in script.events if isinstance(event, TeamMessageSent))
    assert sent.run == ""
    async with open_page(page, script):
        await check_states(page, script)
        states = await read_texts(page, ".team .line span")
        assert states[0] == "general · idle, 1 run, 1 unread"
        summaries = await read_texts(page, ".team-message summary")
        assert any("→ alice 1.1.1: The window is blue. It is open." in text for text in summaries)


def name_two(request: Request) -> Answer:
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
    model = ScriptedModel(name_two)
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
