"""What a session was started with is there again after a resume; each option is classified."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent, Budget, Isolation, Session
from mudroom._adapters.journals.sqlite.folder import get_session_path
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import SessionOpened
from mudroom._session.options import SessionOptions, gather_options, list_places
from mudroom._session.recorded_options import OF_PROCESS, RESTORED, RESTORED_OTHERWISE
from mudroom.errors import SessionPaused
from mudroom.permissions import Permissions

CODER = Agent(name="coder", description="Writes.", tools=("todo",), claims_tasks=True)
VALUES: dict[str, Any] = {
    "agent": "coder",
    "agent_files": True,
    "agents": [CODER],
    "allow_net": True,
    "auto_compact": False,
    "budget": Budget(usd=3.0),
    "check": "true",
    "check_seconds": 7,
    "child_model": {"coder": "offline"},
    "child_turns": 9,
    "clear_at": 50,
    "compact_at": 70,
    "context_window": 50_000,
    "isolate": True,
    "isolated_mb": 77,
    "max_children": 3,
    "max_output_tokens": 777,
    "max_returns": 0,
    "permissions": Permissions.of(deny=["Bash(git push:*)"]),
    "sandbox": "off",
    "takes_images": True,
    "worker": "process:1",
}
"""A value that is not the default, for each option that is restored."""


def test_each_option_says_what_becomes_of_it_after_a_resume() -> None:
    assert {*RESTORED_OTHERWISE, *OF_PROCESS} < list_places(SessionOptions).keys()
    assert VALUES.keys() == set(RESTORED)


def open_session(tmp_path: Path, **options: Any) -> Session:
    model = ScriptedModel(options.pop("answer", lambda _: "done"))  # pyright: ignore[reportUnknownLambdaType]
    options = gather_options(options, SessionOptions())
    return Session(model=model, cwd=str(tmp_path), home=str(tmp_path / "home"), **options)


async def interrupt(tmp_path: Path, **options: Any) -> str:
    """Start a session with options, and pause it while its prompt works; return its id."""
    waiting = asyncio.Event()

    async def answer(request: Request) -> Answer:
        waiting.set()
        await asyncio.sleep(60)
        return "never"

    async with open_session(tmp_path, answer=answer, **options) as session:
        running = asyncio.create_task(session.run("P"))
        await waiting.wait()
        session.pause()
        with pytest.raises(SessionPaused):
            await running
    return session.id


def read_options(tmp_path: Path, session: str) -> list[dict[str, Any] | None]:
    events = open_reader(get_session_path(tmp_path / "home", session)).read()
    return [event.options for event in events if isinstance(event, SessionOpened)]


@pytest.mark.parametrize("name", RESTORED)
async def test_a_resumed_session_has_the_option_again(tmp_path: Path, name: str) -> None:
    options = {name: VALUES[name]}
    if name in ("agent", "child_model"):
        options["agents"] = [CODER]
    session = await interrupt(tmp_path, **options)
    async with open_session(tmp_path, resume=session) as resumed:
        assert (await resumed.run("NEXT")).ok
    first, second = read_options(tmp_path, session)
    assert first == second and first and name in first


async def test_an_option_that_is_named_wins_over_the_record(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, sandbox="off", child_turns=9, budget=Budget(usd=3.0))
    chosen = {"child_turns": 31, "sandbox": "file", "budget": Budget(usd=5.0)}
    async with open_session(tmp_path, resume=session, **chosen) as resumed:
        assert resumed.budget == Budget(usd=5.0)
        await resumed.resume_unfinished()
    assert read_options(tmp_path, session)[1] == {
        "sandbox": "file",
        "child_turns": 31,
        "budget": {"usd": 5.0},
    }


async def test_a_group_that_is_named_keeps_what_it_does_not_change(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, check="true", isolated_mb=77, child_turns=9)
    isolation = Isolation(max_mb=88)
    async with open_session(tmp_path, resume=session, isolation=isolation) as resumed:
        await resumed.resume_unfinished()
    expected = {"check": "true", "isolated_mb": 88, "child_turns": 9}
    assert read_options(tmp_path, session)[1] == expected


async def test_an_agent_that_is_given_again_replaces_the_recorded_one(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, agents=[CODER])
    newer = Agent(name="coder", description="Newer.")
    other = Agent(name="other", description="Reads.")
    async with open_session(tmp_path, resume=session, agents=[newer, other]) as resumed:
        agents = {agent.name: agent.description for agent in resumed.agents}
    assert (agents["coder"], agents["other"]) == ("Newer.", "Reads.")


async def test_a_rule_that_forbids_still_holds_and_no_file_rule_is_recorded(
    tmp_path: Path,
) -> None:
    denied = Permissions.of(deny=["Bash(echo:*)"])
    session = await interrupt(tmp_path, permissions=denied, sandbox="off")

    def answer(request: Request) -> Answer:
        return [[call("bash", command="echo x > made.txt")], "done"][request.turn]

    async with open_session(tmp_path, resume=session, answer=answer) as resumed:
        assert any("--sandbox off" in notice for notice in map(str, resumed.notices))
        await resumed.resume_unfinished()
    assert not (tmp_path / "made.txt").exists()


async def test_no_secret_is_in_the_record(tmp_path: Path) -> None:
    session = await interrupt(tmp_path, environ={"ANTHROPIC_API_KEY": "sk-secret"}, **VALUES)
    assert b"sk-secret" not in get_session_path(tmp_path / "home", session).read_bytes()


async def test_a_program_finds_the_reports_of_what_is_done(tmp_path: Path) -> None:
    held = asyncio.Event()

    async def answer(request: Request) -> Answer:
        if request.prompt == "C":
            held.set()
            await asyncio.sleep(60)
        return f"{request.prompt} is done"

    async with open_session(tmp_path, answer=answer, resume=None) as session:
        await session.task("T", key="k")
        working = asyncio.create_task(session.map(["A", "B", "C"]))
        await held.wait()
        while len([each for each in await session.reports() if each.report]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        session.pause()
        with pytest.raises(SessionPaused):
            await working
    async with open_session(tmp_path, resume=session.id) as resumed:
        found = {each.prompt: each for each in await resumed.reports()}
        done = {name: each.report.text for name, each in found.items() if each.report}
        assert done == {name: f"{name} is done" for name in "TAB"}
        assert found["T"].key == "k" and found["C"].report is None
        await resumed.resume_unfinished()
        assert all(each.report for each in await resumed.reports())
