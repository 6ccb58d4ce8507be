"""Parts of teams taken out, one by one: the checks of the record must notice each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.reliability.test_teams import (
    NAMES,
    check_cut,
    check_team_record,
    make_script,
    read_record,
    run_to_end,
)

from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunStarted, TeamMessageSent
from mudroom._engine.children import team
from mudroom._engine.children.child_brief import make_next_brief
from mudroom._engine.team_registry import Teams
from mudroom._projections.team import Roster

TEAM = NAMES[:3]


def ignore(*_: object) -> None:
    """Do nothing, in place of a method."""


def answer_to_idle_child(request: Request) -> Answer:
    """Write to a child that is idle."""
    if request.prompt != "PARENT":
        return f"ann has {len(request.messages)} messages"
    answers: list[Answer] = [
        [call("task", prompt="ANN", name="ann")],
        [call("send_message", to="ann", message="ben writes")],
    ]
    return answers[request.turn] if request.turn < len(answers) else "I wait."


def forget_deliveries(patch: pytest.MonkeyPatch) -> None:
    """Let read messages stay unread."""
    patch.setattr(Roster, "_deliver", ignore)


def start_without_ids(patch: pytest.MonkeyPatch) -> None:
    """Let next runs not name the messages with which they begin."""

    def make(*arguments: Any, **options: Any) -> Any:
        return replace(make_next_brief(*arguments, **options), message_ids=())

    patch.setattr(team, "make_next_brief", make)


def lose_messages(patch: pytest.MonkeyPatch) -> None:
    """Let the end of a run start no next run."""

    async def do_nothing(*_: object) -> None:
        pass

    patch.setattr(team.NextRuns, "start_if_due", do_nothing)
    patch.setattr("mudroom._engine.children.members.TeamMembers.pass_on", ignore)


@pytest.mark.parametrize(
    ("guard", "script"),
    [
        (forget_deliveries, make_script(TEAM, 2)),
        (start_without_ids, ScriptedModel(answer_to_idle_child)),
        (lose_messages, make_script(TEAM, 2)),
    ],
)
async def test_a_team_without_the_guard_is_noticed(
    guard: Callable[[pytest.MonkeyPatch], None],
    script: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    guard(monkeypatch)
    session, _ = await run_to_end(tmp_path / "home", tmp_path, script)
    events = read_record(tmp_path / "home", session)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        check_team_record(events)


async def test_a_resume_that_forgets_sent_messages_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session, _ = await run_to_end(tmp_path / "home", tmp_path, make_script(TEAM, 2))
    events = read_record(tmp_path / "home", session)
    assert check_team_record(events) == 30
    (first, *_) = [n for n, event in enumerate(events) if isinstance(event, TeamMessageSent)]
    observe = Teams.observe

    def forget(teams: Teams, event: Any) -> None:
        is_old = isinstance(event, TeamMessageSent) and event in events[: first + 1]
        if not is_old:
            observe(teams, event)

    monkeypatch.setattr(Teams, "observe", forget)
    assert any(isinstance(event, RunStarted) for event in events[: first + 1])
    with pytest.raises(AssertionError):
        await check_cut(tmp_path / "cut", tmp_path, events[: first + 1], session, TEAM, 2)
