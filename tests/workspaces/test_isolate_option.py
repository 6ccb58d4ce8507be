"""`isolate`: children that may change files have isolated workspaces unless something says no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.test_isolated_children import open_session

from mudroom import Agent, Isolation, Session, UsageError
from mudroom._adapters.journals.memory import MemoryJournal, MemoryStore
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.agents import WorkspaceKind
from mudroom._core.events import RunStarted, SessionOpened
from mudroom._replay import replay
from mudroom._session.config import load_settings


def make_model(*calls: dict[str, Any]) -> ScriptedModel:
    """Return a model whose first answer starts a child with each set of arguments."""

    def choose_answer(request: Request) -> Answer:
        if request.prompt.startswith("child"):
            return "Done."
        if request.turn % 2 == 0:  # also of a resumed conversation
            return [
                call("task", prompt=f"child {number}", **arguments)
                for number, arguments in enumerate(calls)
            ]
        return "All reported."

    return ScriptedModel(choose_answer)


async def run_session(
    project: Path, *calls: dict[str, Any], **options: Any
) -> tuple[MemoryJournal, list[WorkspaceKind]]:
    """Run a parent with children; return the journal and the kinds of their workspaces."""
    journal = MemoryJournal()
    model = make_model(*calls)
    async with open_session(project, model, journal=journal, **options) as session:
        assert (await session.run("Go.")).ok
    events = [event async for event in journal.read()]
    await replay(events)
    briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    return journal, [briefs[f"1.1.{number}"].workspace.kind for number in range(1, len(calls) + 1)]


async def test_each_child_that_may_write_is_isolated(project: Path) -> None:
    calls: list[dict[str, Any]] = [
        {},
        {"agent": "explore"},
        {"isolation": "shared"},
        {"name": "planner", "plan": True},
    ]
    journal, kinds = await run_session(project, *calls, isolation=Isolation(each_child=True))
    shared = WorkspaceKind.SHARED
    assert kinds == [WorkspaceKind.ISOLATED, shared, shared, shared]
    opened = [event async for event in journal.read() if isinstance(event, SessionOpened)]
    assert opened[0].isolate


async def test_the_agent_overrides_the_session_and_the_call_overrides_the_agent(
    project: Path,
) -> None:
    agents = [
        Agent(name=kind, description="Works.", workspace=WorkspaceKind(kind))
        for kind in ("shared", "isolated", "copy")
    ]
    calls: list[dict[str, Any]] = [
        *({"agent": agent.name} for agent in agents),
        {"agent": "isolated", "isolation": "shared"},
        {"agent": "copy", "isolation": "shared"},
    ]
    _, kinds = await run_session(
        project, *calls, isolation=Isolation(each_child=True), agents=agents
    )
    assert kinds == ["shared", "isolated", "copy", "shared", "copy"]


async def test_without_the_option_children_share_the_folder(project: Path) -> None:
    _, kinds = await run_session(project, {}, {"isolation": "isolated"})
    assert kinds == ["shared", "isolated"]


async def test_a_resumed_session_isolates_as_its_record_says(project: Path) -> None:
    store = MemoryStore()
    options: dict[str, Any] = {"environ": {}, "home": str(project.parent / "home"), "store": store}
    model = make_model({})
    async with Session(
        model=model, cwd=str(project), isolation=Isolation(each_child=True), **options
    ) as session:
        await session.run("Go.")
    async with Session(model=make_model({}), resume=session.id, **options) as resumed:
        kinds: list[WorkspaceKind] = []
        resumed.watch(
            lambda event: (
                kinds.append(event.brief.workspace.kind)
                if isinstance(event, RunStarted) and event.brief.parent
                else None
            )
        )
        await resumed.run("Go on.")
    assert kinds == [WorkspaceKind.ISOLATED]


@pytest.mark.parametrize("option", [Isolation(each_child=True), Isolation(check="make test")])
async def test_a_session_with_objects_of_the_caller_cannot_isolate(
    project: Path, option: Isolation
) -> None:
    async with Session(model="offline", cwd=str(project), journal="memory") as session:
        sandbox = session.sandbox
        with pytest.raises(UsageError, match="isolated workspaces cannot use"):
            async with Session(model="offline", sandbox=sandbox, isolation=option):
                pass


def test_the_setting_comes_from_the_user_not_from_the_project(tmp_path: Path) -> None:
    user_file = tmp_path / "config/mudroom/config.toml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text("isolate = true\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    assert load_settings(cwd=str(tmp_path), environ=environ, flags={}).isolation.each_child
    (tmp_path / ".mudroom.toml").write_text("isolate = true\n")
    with pytest.raises(UsageError, match="isolate"):
        load_settings(cwd=str(tmp_path), environ={"HOME": str(tmp_path)}, flags={})
