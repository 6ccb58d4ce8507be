"""The section "Team" of the viewer: states as the terminal shows them, messages that open."""

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
from .test_lanes import record_team
from .test_page import open_page, read_texts

TEXT = "The window is blue.\nIt is open."


def answer(request: Request) -> Answer:
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
    model = ScriptedModel(answer)
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
